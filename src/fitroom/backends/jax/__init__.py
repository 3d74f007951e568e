"""The JAX backend."""
