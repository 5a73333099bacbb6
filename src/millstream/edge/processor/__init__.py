"""A processor as a process."""
