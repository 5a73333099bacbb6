"""OVER: aggregates and neighbours of each row, bound to columns beside it."""
