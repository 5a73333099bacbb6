"""A cluster in virtual time: processors, network, flows."""
