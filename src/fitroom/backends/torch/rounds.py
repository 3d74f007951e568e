"""A round of a loop on PyTorch: which tensors are alive, and what its end gives back."""

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from fitroom.backends.torch.device import release


def live_arrays() -> list[tuple[Any, int]]:
    """The tensors that Python can reach and the bytes of each; views of one storage count once."""
    found, storages = [], set()
    for tensor in _tensors():
        if isinstance(tensor, FakeTensor):  # of an estimate; it has no memory, and asking for it warns
            continue
        try:
            storage = tensor.untyped_storage()
            place, size = storage.data_ptr(), storage.nbytes()
        except (RuntimeError, NotImplementedError):  # a tensor without memory: sparse, or on the meta device
            continue
        if place and place not in storages:
            storages.add(place)
            found.append((tensor, size))
    return found


def count_programs() -> dict[tuple[int, str], int]:
    """None: PyTorch runs operation by operation, and what `torch.compile` compiles it bounds itself."""
    return {}


def begin_round() -> Callable[[], tuple[str, ...]]:
    """Note what is there; the function that comes back ends the round."""
    before = {id(tensor): weakref.ref(tensor) for tensor in _tensors()}

    def end_round() -> tuple[str, ...]:
        gc.collect()
        _drop_gradients(before)
        release()
        return ()

    return end_round


def _drop_gradients(before: dict[int, Any]) -> None:
    """Drop the last gradients of Keras variables that the round made and that are still in use.

    They are as large as the weights. Keras drops them itself, but only as the next step of the same model begins.
    """
    import keras

    for variable in [each for each in gc.get_objects() if issubclass(type(each), keras.Variable)]:
        value = variable._value
        reference = before.get(id(value))
        if isinstance(value, torch.Tensor) and value.grad is not None and (reference is None or reference() is None):
            value.grad = None


def _tensors() -> Iterator[torch.Tensor]:
    return (each for each in gc.get_objects() if issubclass(type(each), torch.Tensor))
