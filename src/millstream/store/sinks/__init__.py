"""Targets that keep a delivery's number beside the rows, so that each row is there once."""
