"""What a running engine shows of itself."""
