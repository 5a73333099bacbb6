"""Large: tens of millions of rows, what they cost, and whether anything grows with them."""
