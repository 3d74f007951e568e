"""A plan made readable."""
