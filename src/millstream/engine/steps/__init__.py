"""One step: what it reads, who runs together, what it did."""
