"""Both sides of a move, and segments on their way between processors."""
