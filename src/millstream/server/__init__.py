"""The edge: HTTP APIs, client, authentication, dashboard."""
