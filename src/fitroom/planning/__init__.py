"""Finds the fastest recipe that fits a budget."""
