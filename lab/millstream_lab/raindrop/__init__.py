"""Adaptive scheduling (seed 001)."""
