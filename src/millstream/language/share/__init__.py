"""Many queries, one dataflow: matching a new query against what runs."""
