"""Commands that plan, place and simulate without running anything."""
