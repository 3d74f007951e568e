"""The memory of a training step: timelines, models of allocators, estimates, and the cache of estimates."""
