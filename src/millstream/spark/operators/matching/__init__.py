"""Row patterns: a machine that runs in Spark's Python workers, and the operator around it."""
