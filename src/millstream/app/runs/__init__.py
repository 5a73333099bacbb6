"""A job carried out to its end in one process: folder, engine, display, summary."""
