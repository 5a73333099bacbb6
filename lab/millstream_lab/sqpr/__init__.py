"""SQPR (seed 004)."""
