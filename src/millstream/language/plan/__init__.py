"""The algebra: nodes, expressions, windows, rewrite rules, fingerprints, explain."""
