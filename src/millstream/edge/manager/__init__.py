"""The manager as a process."""
