"""Layers of Keras computed by PyTorch's fused operations: the same mathematics in less memory and time."""
