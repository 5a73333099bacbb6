"""Network-aware placement: trees over processors at distances."""
