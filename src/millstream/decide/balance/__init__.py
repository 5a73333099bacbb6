"""When and what to move: cost models, redistribution policies, partners."""
