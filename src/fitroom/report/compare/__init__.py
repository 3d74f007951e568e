"""Runs and trials side by side: as text for a terminal, and as one page."""
