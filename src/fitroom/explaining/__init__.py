"""Crash logs explained: which device, phase, layer and allocation, why, and the next settings to try."""
