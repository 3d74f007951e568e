"""Sample weights: made from class weights, or one array of weights for several outputs."""

from typing import Any

import numpy as np

from fitroom.batch import has_same_structure, is_nested, map_structure
from fitroom.errors import InputError
from fitroom.inputs.keras_loader import floatx


def weights_of_classes(y: Any, class_weight: dict[int, float]) -> Any:
    """The weight of each target's class: targets are class numbers or one-hot; a class without a weight has 1.

    >>> weights_of_classes(np.array([[0, 1], [1, 0]]), {1: 3.0}).tolist()
    [3.0, 1.0]
    """
    if is_nested(y):
        raise InputError(
            "`class_weight` is for models with a single output. Received: several targets.",
            hint="give `sample_weight` in the structure of the targets",
        )
    targets = np.asarray(y)
    if targets.ndim > 1:
        targets = targets.argmax(axis=-1) if targets.shape[-1] != 1 else targets[..., 0]
    classes = np.round(targets).astype("int32")
    weights = np.ones(classes.shape, floatx())
    for number, weight in class_weight.items():
        weights[classes == number] = weight
    return weights


def weights_of_outputs(y: Any, sample_weight: Any) -> Any:
    """Sample weights in the structure of the targets; one array of weights is for every output."""
    if sample_weight is None or not is_nested(y):
        return sample_weight
    if is_nested(sample_weight):
        if not has_same_structure(y, sample_weight):
            raise InputError(
                "`sample_weight` must be one array, or one for each target in the structure of the targets. "
                f"Received: targets {_outline(y)}, weights {_outline(sample_weight)}."
            )
        return sample_weight
    shape = tuple(sample_weight.shape)
    if not (len(shape) == 1 or shape[1:] == (1,)):
        raise InputError(
            "One `sample_weight` for several outputs must have one number a sample. "
            f"Received: an array of shape {shape}.",
            hint="give one array of weights for each target",
        )
    return map_structure(lambda _: sample_weight, y)


def _outline(structure: Any) -> str:
    return str(map_structure(lambda _: "array", structure)).replace("'array'", "array")
