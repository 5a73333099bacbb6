"""HTTP in and out: daemons, views, dashboard."""
