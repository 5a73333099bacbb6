"""Whether and where a new query runs."""
