"""Python's garbage collector, which decides when some tensors are freed.

Keras on PyTorch goes through structures of tensors (batches, inputs of Add) with closures that refer to themselves,
and so keep the tensors until Python collects young cycles: at 700 new objects. Tracing makes other objects than
training does, so while it runs the collector comes when it would come in training, counted in calls of layers.
"""

import gc
from types import TracebackType
from typing import Any

from torch.nn.modules.module import register_module_forward_hook

CALLS_A_COLLECTION = 28
"""Calls of layers that make 700 objects: 20 to 31, counted in real training of five models."""

_MOST_STEPS = 8


class Collector:
    """Collects at the worst of times: at the end of the last forward pass the last collection is longest ago."""

    def __init__(self) -> None:
        self._num_calls = 0
        self._calls_a_step = 0
        self._steps_done = -1
        self._num_steps: int | None = None

    def __enter__(self) -> "Collector":
        self._was_enabled = gc.isenabled()
        gc.disable()
        self._handle = register_module_forward_hook(self._called)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.remove()
        if self._was_enabled:
            gc.enable()

    def steps_to_go(self, *, at_least: int) -> bool:
        """Whether another step is to be run; asked before each. Small models take more to become steady."""
        self._steps_done += 1
        if self._steps_done == 1:
            self._calls_a_step = max(self._num_calls, 1)
            to_collect_twice = 1 + -(-2 * CALLS_A_COLLECTION // self._calls_a_step)
            self._num_steps = min(max(at_least, to_collect_twice), _MOST_STEPS)
        return self._num_steps is None or self._steps_done < self._num_steps

    def _called(self, *_: Any) -> None:
        self._num_calls += 1
        if self._num_steps is None:
            return
        calls_to_go = self._num_steps * self._calls_a_step - self._num_calls
        if calls_to_go > 0 and calls_to_go % CALLS_A_COLLECTION == 0:
            gc.collect(0)
