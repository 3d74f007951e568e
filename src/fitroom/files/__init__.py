"""Files on disk: written atomically, and checked when they are read."""
