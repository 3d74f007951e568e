"""The memory of a Keras step on PyTorch, without running it."""
