"""A jitted step tried in graph mode first, where it may not fit.

When XLA runs out of memory in TensorFlow, while it tries kernels or runs, it does not give back all that it took, and
smaller steps then fail as well. In a graph it costs nothing but the attempt, and the two take about the same memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

from fitroom.backends.tensorflow.device import devices, read_memory
from fitroom.backends.tensorflow.train.rollback import Transaction
from fitroom.cards.nvml import live_gpus

_SAFE_SHARE = 0.5
_STEP_PER_OUTPUTS = 3
"""A step takes up to so many times what its layers put out. Where that is half of what there is, it is sure to fit."""

_BYTES = 4


class _Undo(Exception):  # noqa: N818 - no error: what it ends went well
    """Has a transaction put everything back."""


@contextmanager
def run_undone() -> Iterator[Transaction]:
    """A transaction of which nothing stays."""
    try:
        with Transaction() as transaction:
            yield transaction
            raise _Undo
    except _Undo:
        pass


def may_run_out(model: Any, samples: int) -> bool:
    """Whether a micro-batch of so many samples might not fit. Never where memory has no limit, as on a plain CPU."""
    limit_bytes = _limit_bytes()
    if limit_bytes is None:
        return False
    outputs = _output_elements(model)
    return outputs is None or _STEP_PER_OUTPUTS * outputs * samples * _BYTES > _SAFE_SHARE * limit_bytes


def _limit_bytes() -> int | None:
    device = devices()[0]
    limit_bytes = read_memory(device).limit_bytes
    if limit_bytes is None and device.kind == "gpu":
        gpus = live_gpus()
        return gpus[0].free_bytes if gpus else 0
    return limit_bytes


def _output_elements(model: Any) -> int | None:
    """Numbers that the layers put out for one sample; None where they do not tell."""
    try:
        shapes = [tensor.shape[1:] for layer in model.layers for tensor in _outputs(layer)]
    except (AttributeError, ValueError):  # a subclassed model, or a layer that is called more than once
        return None
    return None if any(None in shape for shape in shapes) else sum(map(prod, shapes))


def _outputs(layer: Any) -> list[Any]:
    import keras

    return list(keras.tree.flatten(layer.output))
