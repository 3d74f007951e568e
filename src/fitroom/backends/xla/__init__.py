"""What JAX and TensorFlow share of XLA: compiling for a card that is not there, and reading what it lays out."""
