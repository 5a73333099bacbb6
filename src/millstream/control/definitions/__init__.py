"""Streams and goals as tables: how job files and messages give them."""
