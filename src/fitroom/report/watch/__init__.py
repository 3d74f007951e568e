"""Readings of a watch: as text, as a figure, as a page."""
