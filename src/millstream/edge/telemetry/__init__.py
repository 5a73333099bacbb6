"""What other systems hear of an engine: where its data comes from and goes to, and traces."""
