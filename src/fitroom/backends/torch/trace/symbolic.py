"""Keras's symbolic calls on PyTorch, without memory.

To learn the shapes of a model's outputs Keras calls it on the device "meta", and where that fails (a layer that draws
random numbers, or holds a tensor), it runs the call for real, with the whole batch, on the card.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import keras
from keras.src.backend.torch import core as keras_core  # no public name can be replaced by another
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fitroom.backends.torch.trace.cuda.functions import skip_scatter_loop
from fitroom.backends.torch.trace.cuda.values import ARRAYS, VALUES
from fitroom.backends.torch.trace.fake_mode import DEVICE, FakeMode, silence_fake_tensor_log


@contextmanager
def symbolic_calls() -> Iterator[None]:
    """Have Keras take fake tensors, during the block, where its device "meta" fails."""
    device_scope = keras_core.device_scope

    def scope(device: Any) -> Any:
        return device_scope(device) if device == "meta" else fake_device()

    keras_core.device_scope = scope
    try:
        yield
    finally:
        keras_core.device_scope = device_scope


@contextmanager
def fake_device() -> Iterator[None]:
    """A scope in which Keras computes on fake tensors."""
    with ExitStack() as stack:
        stack.enter_context(silence_fake_tensor_log())
        for each in (keras.device(DEVICE), skip_scatter_loop(), FakeMode(), _Values(), _Arrays()):
            stack.enter_context(each)
        yield


class _Values(TorchDispatchMode):  # type: ignore[misc]
    """Answers where a layer asks for the value of a fake tensor."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else PyTorch imports its compiler, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kernel = VALUES.get(func)
        return kernel(self, func, args, kwargs or {}) if kernel else func(*args, **kwargs or {})


class _Arrays(TorchFunctionMode):  # type: ignore[misc]
    """Answers where a layer asks for the values of a fake tensor as an array."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return ARRAYS.get(func, func)(*args, **kwargs or {})
