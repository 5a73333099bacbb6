"""Streams on one processor, without Spark: ledger, segments, cursors, retention, moves."""
