"""Rows a second: ours, plain Structured Streaming, Flink."""
