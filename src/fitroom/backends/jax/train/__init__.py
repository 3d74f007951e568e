"""Training steps on JAX."""
