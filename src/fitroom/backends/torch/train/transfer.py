"""Transfer of batches to the card, through page-locked memory of the host."""

from typing import Any

import keras
import numpy as np
import torch

from fitroom.batch import Batch


def put_on_device(batch: Batch) -> Batch:
    """Transfer a batch to the device on which Keras computes."""
    return batch.map(_on_device)


def pin(batch: Batch) -> Batch:
    """Copy a batch to page-locked memory, which a card reads by itself; returned as it is where there is none."""
    if not torch.cuda.is_available():
        return batch
    try:
        return batch.map(_pinned)
    except (RuntimeError, MemoryError):  # page-locked memory is scarce
        return batch


def _on_device(array: Any) -> Any:
    if torch.cuda.is_initialized() and isinstance(array, torch.Tensor) and array.is_pinned():
        device = keras.ops.empty(()).device  # where Keras computes
        return array.to(device, non_blocking=True)  # the host does not wait for it
    return keras.ops.convert_to_tensor(array)


def _pinned(array: Any) -> Any:
    if not isinstance(array, np.ndarray | torch.Tensor):
        return array
    if isinstance(array, torch.Tensor):
        return array.pin_memory() if array.device.type == "cpu" else array
    with keras.device("cpu"):
        return keras.ops.convert_to_tensor(array).pin_memory()
