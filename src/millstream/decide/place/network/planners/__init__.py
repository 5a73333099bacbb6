"""One network-aware planner a module."""
