"""A move: its phases, led by a manager or by partners."""
