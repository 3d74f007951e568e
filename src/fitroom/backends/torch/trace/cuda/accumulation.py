"""Gradients that meet: autograd adds up what several users of a tensor send back to it.

It does so in place where nobody else holds the first of them. For subclasses of tensors, as fake ones are, it never
does; so what it would do is found out here.
"""

from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def add(recorder: Any, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`first + second`: into the first where it is autograd that adds, and it may do so."""
    first = args[0]
    if torch._C._current_graph_task_id() == -1 or not recorder.is_older_than_node(first):
        return operation(*args, **kwargs)
    if _references(args) != _references_where_held_once() or not _is_dense(first):
        return operation(*args, **kwargs)
    operation(*args, **kwargs)  # for its checks; the result is dropped before it is counted
    return first


def accumulation() -> dict[Any, Any]:
    """The operation by which autograd adds up gradients."""
    _references_where_held_once()  # found out before anything is traced
    return {torch.ops.aten.add.Tensor: add}


def _references(args: tuple[Any, ...]) -> tuple[int, int]:
    """How often the first argument, and its storage, are referred to."""
    return args[0]._use_count(), torch._C._storage_Use_Count(args[0].untyped_storage()._cdata)


@cache
def _references_where_held_once() -> tuple[int, int]:
    """The same for a gradient that autograd alone holds, by trying: being asked adds references of its own."""
    found = []

    def asked(recorder: Any, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found.append(_references(args))
        return operation(*args, **kwargs)

    class Asking(TorchDispatchMode):  # type: ignore[misc]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kernel = asked if func is torch.ops.aten.add.Tensor else None
            return func(*args, **kwargs or {}) if kernel is None else kernel(self, func, args, kwargs or {})

    with torch.enable_grad():
        leaf = torch.ones(2, requires_grad=True)
        middle = leaf * 2
        loss = torch.mul(middle * 3, middle * 5).sum()
        with Asking():
            loss.backward()
    return found[0]


def _is_dense(tensor: Any) -> bool:
    """Whether every place of its memory is used once, in whatever order of dimensions."""
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length == 1:
            continue
        if stride != expected:
            return False
        expected *= length
    return True
