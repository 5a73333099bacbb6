"""Planning with reuse (SQPR): the state of a system and what a query costs in it."""
