"""Which operator runs next: statistics, QoS, one algorithm a module, selectors."""
