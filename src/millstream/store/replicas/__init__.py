"""A home at several processors: its commits in order, and the copies that others keep of it."""
