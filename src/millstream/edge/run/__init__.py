"""The endpoint and the dashboard of a run in this process."""
