"""A training made readable while it runs."""
