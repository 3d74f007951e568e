"""Overheads: the memory of a card that is spent before the first tensor, on driver, context and kernels."""

from fitroom.cards.catalogue import Card

_MIB = 1024**2
_GIB = 1024**3

# Measured on an H200: 607 of its 143,771 MiB are the driver's own (page tables, error correction).
_DRIVER_SHARE = 607 / 143_771

# Measured on an H200 while training: the CUDA context, and the kernels of the framework, cuDNN and cuBLAS.
# JAX 0.11: 566 MiB for most of 17 models, 774 at most. PyTorch 2.11: 760 for most of 32, 838 at most. TensorFlow 2.21:
# 625 for most of 38, 1,009 at most but for one (ConvNeXtTiny in bfloat16, whose kernels alone take a GiB).
_PROCESS_BYTES = {"jax": 800 * _MIB, "torch": 850 * _MIB, "tensorflow": 1010 * _MIB}


def context_bytes(card: Card | None, backend: str | None) -> int:
    """Bytes of the card that a framework's allocator never sees.

    `card` is None for a card that is not in the catalogue; for an unknown backend the most of any is taken.
    """
    if card is not None and card.vendor == "Apple":
        return _system_bytes(card.memory_bytes)
    process_bytes = _PROCESS_BYTES.get(backend or "", max(_PROCESS_BYTES.values()))
    return process_bytes + (card.memory_bytes - visible_bytes(card.memory_bytes) if card else 0)


def visible_bytes(memory_bytes: int) -> int:
    """The memory that CUDA reports for a card of `memory_bytes`: what the driver keeps for itself is taken off."""
    return memory_bytes - int(memory_bytes * _DRIVER_SHARE)


def _system_bytes(unified_bytes: int) -> int:
    # macOS lets the GPU have two thirds of a small unified memory and three quarters from 36 GiB on
    # (Metal's `recommendedMaxWorkingSetSize`).
    return unified_bytes // 4 if unified_bytes >= 36 * _GIB else -(-unified_bytes // 3)
