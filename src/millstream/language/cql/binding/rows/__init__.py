"""Items of FROM that give other rows than those of a stream or a query."""
