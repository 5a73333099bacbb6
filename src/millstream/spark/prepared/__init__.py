"""Small steps from plans that were made once: Spark runs them again over other rows."""
