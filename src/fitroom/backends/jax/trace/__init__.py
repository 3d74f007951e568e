"""The memory of a Keras step on JAX: predicted without running it, or measured on the card where asked."""
