"""The same policies in virtual time: kernel, hosts, network, workloads, faults."""
