"""Talking to a manager and to processors from outside: requests, and results as they come."""
