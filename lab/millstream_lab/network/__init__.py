"""Network-aware query processing (seed 003)."""
