"""Moves, balancing, admission and control on real processes."""
