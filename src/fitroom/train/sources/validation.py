"""The last part of the arrays held out for validation."""

from typing import Any

from fitroom.errors import InputError
from fitroom.train.sources.columns import columns_of
from fitroom.train.sources.rows import is_array
from fitroom.train.structure import leaves, mapped

Parts = tuple[Any, Any, Any]


def split_validation(x: Any, y: Any, sample_weight: Any, validation_split: float) -> tuple[Parts, Parts]:
    """(x, y, sample_weight) to train on, and the last of the samples, before any shuffling, to validate on."""
    if not 0 < validation_split < 1:
        raise InputError(f"`validation_split` must be between 0 and 1. Received: {validation_split}.")
    if not (isinstance(x, dict | list | tuple) or is_array(x)):
        raise InputError(
            f"`validation_split` is for arrays. Received: x of type {type(x).__name__}.",
            hint="split the dataset beforehand and give `validation_data`",
        )
    parts = columns_of(x), columns_of(y), columns_of(sample_weight)
    num_samples = next(leaves(parts)).shape[0]
    first = int(num_samples * (1.0 - validation_split))
    if first in (0, num_samples):
        raise InputError(
            f"{num_samples} samples are too few to hold out a part of {validation_split} for validation.",
            hint="more data, or another `validation_split`",
        )
    trained = tuple(mapped(lambda column: column.part(0, first), part) for part in parts)
    held_out = tuple(mapped(lambda column: column.part(first, column.shape[0]), part) for part in parts)
    return (trained[0], trained[1], trained[2]), (held_out[0], held_out[1], held_out[2])
