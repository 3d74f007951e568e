"""The JAX backend: training steps in `train/`, their memory without running them in `trace/`."""
