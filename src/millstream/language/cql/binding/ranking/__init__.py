"""ROW_NUMBER, RANK and DENSE_RANK within a window, and what else says top-N."""
