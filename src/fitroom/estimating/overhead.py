"""What a card's memory is spent on before the first tensor."""

from fitroom.estimating.cards import Card

_MIB = 1024**2
_GIB = 1024**3

# The driver's context, the kernels of the framework and of cuDNN and cuBLAS, and what the driver keeps for itself.
_CONTEXT_BYTES = {"jax": 900 * _MIB, "torch": 700 * _MIB, "tensorflow": 900 * _MIB}


def context_bytes(card: Card | None, backend: str | None) -> int:
    """Bytes of the card that a framework's allocator never sees. The most of any backend where it is not known.

    `card` is None for a card that is not in the catalogue.
    """
    if card is not None and card.vendor == "Apple":
        return _kept_for_the_system(card.memory_bytes)
    return _CONTEXT_BYTES.get(backend or "", max(_CONTEXT_BYTES.values()))


def _kept_for_the_system(unified_bytes: int) -> int:
    # macOS lets the GPU have two thirds of a small unified memory and three quarters from 36 GiB on
    # (Metal's `recommendedMaxWorkingSetSize`).
    return unified_bytes // 4 if unified_bytes >= 36 * _GIB else -(-unified_bytes // 3)
