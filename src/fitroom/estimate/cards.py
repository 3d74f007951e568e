"""Placeholder until the catalogue is in."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Card:
    """One graphics card: what its datasheet says."""

    name: str
    memory_bytes: int
