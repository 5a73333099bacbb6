"""The oracle: what a continuous query must answer, told by DuckDB over the whole input.

It imports nothing of the package under test: a query model of its own (`model`), what a result is
(`nature`), a printer to CQL (`cql_text`), a generator of DuckDB SQL (`duckdb_sql`), an evaluator
(`evaluate`), a comparison (`compare`), made-up streams and queries (`generate_*`), cases with
rows worked out by hand (`cases`), and the seam to the engine (`harness`).
"""
