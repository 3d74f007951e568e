"""A limit for the fake card."""


def limit_memory(limit_bytes: int) -> str | None:
    """Why that cannot be."""
    return "the fake card has the capacity that it was made with"
