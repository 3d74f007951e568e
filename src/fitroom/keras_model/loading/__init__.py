"""Models by name, by file and by function."""
