"""Rows beside rules: which rules hold for each row."""
