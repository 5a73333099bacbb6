"""OVER: aggregates over the rows near each row, by time, by rows, or from the first row on."""
