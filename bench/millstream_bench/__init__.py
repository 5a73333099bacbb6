"""Benchmarks: ours beside a peer or a target, measured in one run."""
