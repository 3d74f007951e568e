"""A run on disk: its folder, its checkpoints, and the state that a run is resumed from."""
