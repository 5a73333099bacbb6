"""The production manager over processors in virtual time."""
