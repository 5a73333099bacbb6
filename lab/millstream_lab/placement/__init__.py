"""Dynamic operator placement (seed 002)."""
