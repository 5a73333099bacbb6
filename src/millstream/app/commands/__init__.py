"""One module for each command of the command line; each opens with its exit codes.

`--help` imports all of them: what is slow to load (Spark, the web stack, the solver, plots, a
prompt) is imported by the function that needs it.
"""
