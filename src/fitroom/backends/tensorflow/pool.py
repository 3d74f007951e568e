"""How much of a card TensorFlow takes for its allocator."""

from fitroom.cards.catalogue import Card
from fitroom.cards.overhead import visible_bytes

_MIB = 2**20
_CONTEXT_BYTES = 500 * _MIB
"""The CUDA context, which is there before TensorFlow asks what is free."""

_SMALL_CARD_BYTES = 2**31
_RESERVE_OF_SMALL_CARD_BYTES = 225 * _MIB
_RESERVES_MIB = ((6, 500), (7, 1050), (8, 1536))
"""What TensorFlow leaves to the system, by the highest major compute capability it holds for (`MinSystemMemory` in
its gpu_device.cc)."""

_RESERVE_OF_NEWER_MIB = 1800


def default_limit_bytes(card: Card) -> int:
    """The allocator's limit on a card: all that is free but a reserve for the system's libraries."""
    free_bytes = visible_bytes(card.memory_bytes) - _CONTEXT_BYTES
    return free_bytes - _reserve_bytes(free_bytes, card)


def _reserve_bytes(free_bytes: int, card: Card) -> int:
    if free_bytes < _SMALL_CARD_BYTES:
        return _RESERVE_OF_SMALL_CARD_BYTES
    major = (card.compute_capability or (8, 0))[0]
    for highest, reserve_mib in _RESERVES_MIB:
        if major <= highest:
            return reserve_mib * _MIB
    return _RESERVE_OF_NEWER_MIB * _MIB
