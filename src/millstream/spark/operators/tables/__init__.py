"""Operators over tables: changes of their inputs in, changes of their own table out."""
