"""Estimates what a training step takes, also under the smallest limit and with remat under a budget."""
