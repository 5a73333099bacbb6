"""Text to plan: the dialect, the binder, the catalog."""
