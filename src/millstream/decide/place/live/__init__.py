"""Planning of what runs: every stream has one owner, and changes are moves of operators."""
