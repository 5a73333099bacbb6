"""Rows on their way into a base stream."""
