"""Nexmark: an auction house, its queries at once and one by one, ours beside plain Spark."""
