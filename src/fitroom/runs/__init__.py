"""A run on disk: its folder, its checkpoints, and what a run needs to go on where it was."""
