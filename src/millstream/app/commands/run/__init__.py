"""Commands that run queries and look at them."""
