"""Joins beyond inner ones: outer joins, semijoins, and conditions that ask about other rows."""
