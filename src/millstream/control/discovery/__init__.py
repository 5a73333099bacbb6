"""What a file of rows is: its text, dialect, columns and time, found without Spark."""
