"""Millstream over Spark Connect: a server elsewhere has the driver, this process a client of it."""
