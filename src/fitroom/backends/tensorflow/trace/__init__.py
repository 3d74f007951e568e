"""The memory of a Keras step on TensorFlow, without running it."""
