"""A run made readable: its report."""
