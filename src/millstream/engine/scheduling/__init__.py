"""Which step comes next, towards the goals."""
