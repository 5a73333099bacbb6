"""Where operators run: the problem, the checker, one planner a module."""
