"""MATCH_RECOGNIZE: what its clauses mean over the rows of a stream."""
