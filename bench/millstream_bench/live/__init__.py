"""Live rows: delay, pace and cost of many queries, ours beside plain Structured Streaming."""
