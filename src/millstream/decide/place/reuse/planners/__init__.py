"""SQPR itself, by search and as a MILP."""
