"""How rows are computed: Spark compiles queries, evaluates steps and parses what comes in."""
