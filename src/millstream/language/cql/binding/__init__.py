"""A syntax tree and a catalog to a plan."""
