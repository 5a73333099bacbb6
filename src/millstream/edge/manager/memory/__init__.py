"""Where a manager keeps what it must not forget, and who of several leads."""
