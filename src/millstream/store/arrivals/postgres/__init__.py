"""Tables of PostgreSQL as they are and as they change: connections, slots, messages, values."""
