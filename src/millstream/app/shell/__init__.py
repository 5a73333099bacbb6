"""What `millstream shell` understands: statements, commands, completion; not the prompt."""
