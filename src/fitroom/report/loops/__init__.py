"""Rounds of a loop and what leaks in them, as text."""
