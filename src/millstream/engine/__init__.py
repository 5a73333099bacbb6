"""The data plane on Spark: segments, ledger, steps, compaction, ingest, delivery."""
