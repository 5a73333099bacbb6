"""Files, pushed rows and Structured Streaming sources as declared columns."""
