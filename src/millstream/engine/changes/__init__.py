"""Queries that begin with the past, and queries that take the place of others."""
