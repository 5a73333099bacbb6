"""The manager's and the processor's decisions, pure: events in, commands out."""
