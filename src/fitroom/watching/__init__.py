"""Observation of a training: memory, speed, device, and who is told of them. It reads and never steers."""
