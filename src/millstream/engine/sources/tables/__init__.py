"""Sources that are tables elsewhere: what they hold, and how they change."""
