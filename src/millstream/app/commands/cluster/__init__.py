"""Commands that start a cluster and steer it."""
