"""Load and performance ratio of a placement, as seed 002 models them."""
