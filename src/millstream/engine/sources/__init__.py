"""What brings rows, by kind."""
