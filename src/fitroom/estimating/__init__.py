"""What a training step takes: timelines, cards, and the estimate itself."""
