"""Remat: the graph of a model's layers, its costs, and the search for segments to recompute in the backward pass."""
