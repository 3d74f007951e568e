"""What a training step takes: timelines, models of allocators, and the estimate as a value."""
