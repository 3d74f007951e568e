"""The folder of a run: what a training leaves on disk, read back as values."""
