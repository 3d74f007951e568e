"""Batches on their way to the card."""

from typing import Any

import keras
import numpy as np
import torch
from keras.src.backend.torch.core import get_device  # no public name tells where Keras computes

from fitroom.batch import Batch


def on_device(batch: Batch) -> Batch:
    """The batch where Keras computes."""
    return batch.map(_on_device)


def pinned(batch: Batch) -> Batch:
    """The batch in memory of the host that a card reads by itself; as it came where that cannot be had."""
    if not torch.cuda.is_available():
        return batch
    try:
        return batch.map(_pinned)
    except (RuntimeError, MemoryError):  # page-locked memory is scarce
        return batch


def _on_device(array: Any) -> Any:
    if torch.cuda.is_initialized() and isinstance(array, torch.Tensor) and array.is_pinned():
        return array.to(get_device(), non_blocking=True)  # the work goes on meanwhile
    return keras.ops.convert_to_tensor(array)


def _pinned(array: Any) -> Any:
    if not isinstance(array, np.ndarray | torch.Tensor):
        return array
    if isinstance(array, torch.Tensor):
        return array.pin_memory() if array.device.type == "cpu" else array
    with keras.device("cpu"):
        return keras.ops.convert_to_tensor(array).pin_memory()
