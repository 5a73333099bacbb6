"""State machines: events in, messages out. Knows no HTTP, SQLite or Spark."""
