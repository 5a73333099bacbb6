"""The manager: what it knows, decides and asks processors to do."""
