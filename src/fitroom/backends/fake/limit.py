"""A limit for the fake card."""


def limit_memory(limit_bytes: int) -> str | None:
    """Always returns why that is impossible."""
    return "the fake card has the capacity that it was made with"
