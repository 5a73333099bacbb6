"""Tables of files that keep their versions: Delta's versions, Iceberg's snapshots."""
