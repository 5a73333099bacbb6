"""Copies of homes between processes: served, followed, run in the place of a lost processor."""
