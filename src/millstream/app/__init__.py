"""Job files, runs, the Python API, the shell and the command line."""
