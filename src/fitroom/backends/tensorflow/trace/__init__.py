"""The memory of a Keras step on TensorFlow: predicted without running it, or measured on the card where asked."""
