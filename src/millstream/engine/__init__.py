"""What a processor does next, through two ports: one compiles a query, one evaluates a step."""
