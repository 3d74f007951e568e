"""Cutting a model's graph of layers into segments, and choosing which of them to compute again in the backward pass."""
