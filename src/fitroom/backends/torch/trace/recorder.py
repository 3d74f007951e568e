"""Storages followed from birth to death while a program runs on fake tensors."""

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from fitroom.backends.torch.trace.attribution import LayerTracker
from fitroom.backends.torch.trace.step_log import StepLog
from fitroom.memory.timeline import Kind

Kernel = Callable[["Recorder", Any, tuple[Any, ...], dict[str, Any]], Any]
"""An operation as the device carries it out: `kernel(recorder, operation, args, kwargs)` returns its result."""


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Records every operation as a moment and every storage as a buffer."""

    def __init__(self, tracker: LayerTracker, kernels: Mapping[Any, Kernel]) -> None:
        super().__init__()
        self.log = StepLog()
        self.tracker = tracker
        self._kernels = kernels
        self._storages: dict[int, tuple[Any, int]] = {}
        self._lasting: set[str] = set()
        self.is_open = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:  # asked for ten times an operation
            return args[0].device
        self.begin(func)
        kernel = self._kernels.get(func)
        result = func(*args, **kwargs or {}) if kernel is None else kernel(self, func, args, kwargs or {})
        if isinstance(result, torch.Tensor):
            self.follow(result)
            return result
        if isinstance(result, list) and args and isinstance(args[0], list):  # one result for each weight
            for made, given in zip(result, args[0], strict=False):
                self.follow(made, layer=self._layer_of(given))
        for leaf in tree_iter(result):
            if isinstance(leaf, torch.Tensor):
                self.follow(leaf)
        return result

    def _layer_of(self, tensor: Any) -> str | None:
        number = self.number_of(tensor) if isinstance(tensor, torch.Tensor) else None
        return None if number is None else self.log.buffers[number].layer

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else PyTorch imports its compiler, which takes seconds

    def begin(self, name: Any) -> None:
        """Begin the next moment, that of an operation or of a part of it."""
        phase = self.tracker.phase()
        self.log.begin(str(name), self.tracker.layer(phase, len(self.log.moments)), phase)

    def follow(self, tensor: Any, kind: Kind | None = None, layer: str | None = None) -> int | None:
        """Follow the tensor's storage from now on; the number of its buffer, or None where it is not counted."""
        if tensor.device.index is None:
            return None
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._storages:
            return self._storages[key][1]
        size_bytes = storage.nbytes()
        if not size_bytes:
            return None
        moment = self.log.moments[-1] if self.log.moments else None
        if kind is None:
            kind = self.tracker.kind(moment.phase if moment else None)
            layer = layer or (moment.layer if moment else None)
        number = self.log.allocate(size_bytes, kind, layer)
        self._storages[key] = (weakref.ref(storage, lambda _: self._died(key)), number)
        return number

    def mark_input(self, tensor: Any) -> None:
        """Note that a tensor is part of the batch."""
        number = self.number_of(tensor)
        if number is not None:
            self.log.buffers[number].kind = "input"

    def is_older_than_node(self, tensor: Any) -> bool:
        """Whether a tensor was there before the autograd node at work began; not while a layer is recomputed for it."""
        number = None if self.tracker.in_layer else self.number_of(tensor)
        return number is not None and self.log.buffers[number].first < self.tracker.node_began

    def number_of(self, tensor: Any) -> int | None:
        """The buffer of a tensor that is being followed."""
        found = self._storages.get(tensor.untyped_storage()._cdata)
        return found[1] if found else None

    def hold(self, size_bytes: int, kind: Kind = "workspace") -> int | None:
        """Memory that an operation takes beside its results, until it is let go."""
        return self.log.allocate(size_bytes, kind, self.log.moments[-1].layer) if size_bytes else None

    def release(self, number: int | None) -> None:
        """Free what was held."""
        if number is not None:
            self.log.free(number)

    def hold_for_good(self, name: str, size_bytes: int) -> None:
        """Memory that a library takes once and keeps."""
        if name not in self._lasting:
            self._lasting.add(name)
            self.log.allocate(size_bytes, "workspace", None)

    def _died(self, key: int) -> None:
        _, number = self._storages.pop(key)
        if self.is_open:
            self.log.free(number)
