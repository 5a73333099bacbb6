"""The ports of the engine on Spark."""
