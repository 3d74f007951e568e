"""Outputs of micro-batches, joined to those of the whole batch."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fitroom.errors import ModelError


def join_micro_batches(
    outputs: Sequence[Any], sizes: Sequence[int], concatenate: Callable[[Sequence[Any]], Any] = np.concatenate
) -> Any:
    """The outputs of a whole batch. Raises ModelError where outputs have no axis for the samples to join along.

    Args:
        outputs: for each micro-batch the model's outputs, arrays in one structure.
        sizes: the samples of each micro-batch.
        concatenate: joins arrays along their first axis.
    """
    import keras

    if len(outputs) == 1:
        return outputs[0]
    for found, size in zip(outputs, sizes, strict=True):
        shapes = [tuple(leaf.shape) for leaf in keras.tree.flatten(found)]
        if any(not shape or shape[0] != size for shape in shapes):
            told = ", ".join(map(str, shapes))
            raise ModelError(
                f"The outputs of micro-batches cannot be joined. Expected: {size} rows, one a sample. "
                f"Received: outputs of shape {told}.",
                hint="predict with a batch_size that fits whole",
            )
    return join(outputs, concatenate)


def join(outputs: Sequence[Any], concatenate: Callable[[Sequence[Any]], Any] = np.concatenate) -> Any:
    """The outputs of several batches in the structure of one, each array joined along its first axis."""
    import keras

    return keras.tree.map_structure_up_to(outputs[0], lambda *parts: concatenate(parts), *outputs)
