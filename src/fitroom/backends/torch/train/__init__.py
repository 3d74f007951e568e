"""Training steps on PyTorch."""
