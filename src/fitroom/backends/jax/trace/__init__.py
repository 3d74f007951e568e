"""The memory of a Keras step on JAX, without running it."""
