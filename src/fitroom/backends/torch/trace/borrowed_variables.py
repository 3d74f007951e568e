"""Borrowed variables: a model's variables get other values for a time, and everything is restored afterwards.

On PyTorch a step assigns variables in place and leaves gradients on them. So for the time of tracing every variable
has a value that is not its own, and so has every parameter that modules hold.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from keras.src.backend.common import global_state  # no public name tells whether Keras has a seed of its own yet

_OTHER_DTYPES = {"uint16": torch.int32, "uint32": torch.int64}
"""Where Keras takes another dtype on PyTorch than the one of that name."""

_KERAS_SEED = "global_seed_generator"


@contextmanager
def borrow_variables(model: Any, variables: Iterable[Any], device: str) -> Iterator[None]:
    """Give the variables, and all that the model's modules hold, zeros on a device; without memory in a FakeMode."""
    modules = modules_of(model)
    held = [(m.training, dict(m._parameters), dict(m._buffers), dict(m._modules)) for m in modules]
    values = [(variable, variable._value) for variable in variables]
    seed = global_state.get_global_attribute(_KERAS_SEED)
    try:
        stand_ins: dict[int, Any] = {}
        for variable, value in values:
            if value is None:
                zeros = torch.zeros(tuple(variable.shape), dtype=torch_dtype(variable.dtype), device=device)
                variable._value = torch.nn.Parameter(zeros, requires_grad=_is_trained(variable, zeros))
            else:
                variable._value = _stand_in(value, stand_ins, device)
        for module in modules:
            for tensors in (module._parameters, module._buffers):
                tensors.update(
                    {
                        name: _stand_in(tensor, stand_ins, device)
                        for name, tensor in tensors.items()
                        if tensor is not None
                    }
                )
        yield
    finally:
        global_state.set_global_attribute(_KERAS_SEED, seed)
        for variable, value in values:
            variable._value = value
        for module, (training, *contents) in zip(modules, held, strict=True):
            module.training = training
            for tensors, before in zip((module._parameters, module._buffers, module._modules), contents, strict=True):
                tensors.clear()
                tensors.update(before)


def modules_of(model: Any) -> list[Any]:
    """Every layer of the model at any depth, and the PyTorch modules that layers hold."""
    layers = model._flatten_layers()  # a functional model's layers are not modules of it in PyTorch's eyes
    return list({id(module): module for layer in layers for module in torch.nn.Module.modules(layer)}.values())


def torch_dtype(name: str) -> Any:
    """The dtype that Keras takes on PyTorch."""
    return _OTHER_DTYPES.get(name) or getattr(torch, name)


def _is_trained(variable: Any, value: Any) -> bool:
    return bool(variable.trainable) and value.dtype.is_floating_point


def _stand_in(value: Any, stand_ins: dict[int, Any], device: str) -> Any:
    """The zeros that stand for a value: the same tensor wherever the value is held."""
    if id(value) not in stand_ins:
        zeros = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device).zero_()
        is_parameter = isinstance(value, torch.nn.Parameter)
        stand_ins[id(value)] = torch.nn.Parameter(zeros, requires_grad=value.requires_grad) if is_parameter else zeros
    return stand_ins[id(value)]
