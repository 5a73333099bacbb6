"""The dashboard: pages over any `SnapshotSource`, without build step, from this machine alone."""
