"""Processors among themselves: streams, load, moves, placement."""
