"""Files on disk: written whole or not at all, read with no trust in what they hold."""
