"""Many rules over live rows: registered, changed and dropped while data flows."""
