"""The command line, one module a group of commands; each has `register(app)`."""
