"""What becomes of queries, streams and processes when something else than their rows is wrong."""
