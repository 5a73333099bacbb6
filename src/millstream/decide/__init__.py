"""Decisions as pure, seeded functions: where operators run, which runs next, what moves."""
