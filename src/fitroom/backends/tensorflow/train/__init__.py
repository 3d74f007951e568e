"""Training steps on TensorFlow."""
