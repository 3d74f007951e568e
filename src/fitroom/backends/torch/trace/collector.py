"""Python's garbage collector, which decides when some tensors are freed.

Keras on PyTorch goes through structures of tensors (batches, the inputs of Add) with closures that refer to
themselves, and so keep the tensors until Python collects cycles: young ones at 700 new objects, and what is in use
just then not before ten such collections more. Tracing makes other objects than training does, so while it runs the
collector comes when it would come in training: what is left to it there are the closures by which `keras.tree` goes
through structures, as many each time in all kinds of models.
"""

import gc
from collections.abc import Callable
from types import TracebackType
from typing import Any

from keras.src.tree import torchtree_impl as keras_tree  # no public name can be replaced by another
from torch.nn.modules.module import register_module_forward_hook

from fitroom.backends.torch.trace.step_log import StepLog

WALKS_A_COLLECTION = 120
"""How often `keras.tree` goes through a structure between two collections: 99 to 129, counted in real training of six
models. Each time leaves nine objects, but tuples that the last collection freed are used again and not counted."""

_COLLECTIONS_TO_STEADY = 10
_MOST_STEPS = 8
_YOUNG_AND_OLDER = (10, 10)
"""Python's own thresholds: ten collections of the young to one of the older, and ten of those to one of all."""


class Collector:
    """Lets Python collect at the worst of times: the last collection is long ago where the last forward pass ends."""

    def __init__(self, log: StepLog) -> None:
        """`log`: told when a collection begins and ends."""
        self._log = log
        self._num_walks = 0
        self._walks_a_step = 0
        self._walks_until_backward = 0
        """From the beginning of a step to the end of its last call of a layer."""

        self._steps_done = -1
        self._num_steps: int | None = None
        self._num_collections = 0

    def __enter__(self) -> "Collector":
        self._was_enabled, self._thresholds = gc.isenabled(), gc.get_threshold()
        gc.disable()
        gc.freeze()  # what was there before is not looked at, and does not count
        gc.callbacks.append(self._collected)
        self._handle = register_module_forward_hook(self._called)
        self._walker = keras_tree.torch_tree
        keras_tree.torch_tree = _CountedWalks(self._walker, self._walked)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        keras_tree.torch_tree = self._walker
        self._handle.remove()
        gc.callbacks.remove(self._collected)
        gc.unfreeze()
        gc.set_threshold(*self._thresholds)
        (gc.enable if self._was_enabled else gc.disable)()

    def steps_to_go(self, *, at_least: int) -> bool:
        """Whether another step is to be run; asked before each. Small models take more to become steady."""
        self._steps_done += 1
        if self._steps_done == 1:
            self._walks_a_step = max(self._num_walks, 1)
            to_steady = -(-_COLLECTIONS_TO_STEADY * WALKS_A_COLLECTION // self._walks_a_step)
            self._num_steps = max(at_least, min(to_steady, _MOST_STEPS))
        return self._num_steps is None or self._steps_done < self._num_steps

    @property
    def older_collections_a_step(self) -> float:
        """How often in a step what has survived a collection is gone through again."""
        return self._walks_a_step / (_COLLECTIONS_TO_STEADY * WALKS_A_COLLECTION)

    def _called(self, *_: Any) -> None:
        if self._num_steps is None:
            self._walks_until_backward = self._num_walks

    def _walked(self) -> None:
        self._num_walks += 1
        if self._num_steps is None:  # it is not known yet how many there are
            walks_to_go = self._num_walks
        else:
            walks_to_go = (self._num_steps - 1) * self._walks_a_step + self._walks_until_backward - self._num_walks
        if walks_to_go > 0 and walks_to_go % WALKS_A_COLLECTION == 0:
            self._collect_soon()

    def _collect_soon(self) -> None:
        """Have Python collect a little later: as in training at any place in a call, not always where one ends."""
        self._num_collections += 1
        objects_until_then = 7 * self._num_collections % 25
        gc.set_threshold(gc.get_count()[0] + objects_until_then, *_YOUNG_AND_OLDER)
        gc.enable()

    def _collected(self, phase: str, info: Any) -> None:
        self._log.is_collecting = phase == "start"
        if phase == "stop":
            gc.disable()


class _CountedWalks:
    """PyTorch's module of structures as Keras sees it, which tells of every walk through one."""

    def __init__(self, module: Any, walked: Callable[[], None]) -> None:
        self._module = module
        self._walked = walked

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("tree_flatten", "tree_map")):
            self._walked()
        return getattr(self._module, name)
