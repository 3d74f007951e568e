"""Layers of Keras computed by TensorFlow's fused operations in graph mode: less memory, the same mathematics."""
