"""Aggregates over days and months of a time zone."""
