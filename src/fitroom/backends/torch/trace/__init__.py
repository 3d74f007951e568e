"""The memory of a Keras step on PyTorch: predicted without running it, or measured on the card where asked."""
