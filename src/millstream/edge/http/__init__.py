"""One way to serve and to check who asks."""
