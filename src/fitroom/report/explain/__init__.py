"""The explanation of a crash, for reading."""
