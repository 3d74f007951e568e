"""Checks of the machine: whether training runs on the card, and what stands in its way."""
