"""Make a `Batch` of an element of a dataset: unpacked, its arrays on the host."""

from typing import Any

import numpy as np

from fitroom.batch import Batch, leaves, map_structure
from fitroom.errors import InputError
from fitroom.inputs.keras_loader import keras_backend
from fitroom.inputs.recognise import is_jax_array, is_sparse, is_tf_ragged, is_tf_tensor, is_torch_tensor
from fitroom.inputs.sparse import SparseRows
from fitroom.inputs.weights import weights_of_classes


def unpack(data: Any) -> tuple[Any, Any, Any]:
    """Unpack `x`, `(x,)`, `(x, y)` or `(x, y, sample_weight)`, in a tuple or a list.

    >>> unpack(("images", "labels"))
    ('images', 'labels', None)
    """
    if not isinstance(data, tuple | list):
        return data, None, None
    if not is_x_y_weight(data):
        raise InputError(
            f"Data must be `x`, `(x,)`, `(x, y)` or `(x, y, sample_weight)`. Received: {len(data)} parts.",
            hint="several inputs go into one element: ((first, second), y)",
        )
    x, y, sample_weight = (*data, None, None)[:3]
    return x, y, sample_weight


def is_x_y_weight(data: Any) -> bool:
    """Whether an element of a dataset has at most inputs, targets and weights, as Keras's own steps unpack it."""
    return not isinstance(data, tuple | list) or 1 <= len(data) <= 3


def pack_for_step(data: Any) -> Any:
    """Convert an element of a dataset to the structure in which Keras passes it to a step.

    On PyTorch Keras reads every dataset through a DataLoader, which turns tuples into lists.
    """
    return _lists_for_tuples(data) if keras_backend() == "torch" else data


def _lists_for_tuples(structure: Any) -> Any:
    if isinstance(structure, dict):
        return {key: _lists_for_tuples(value) for key, value in structure.items()}
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*map(_lists_for_tuples, structure))
    return list(map(_lists_for_tuples, structure)) if isinstance(structure, list | tuple) else structure


def outline_of(data: Any) -> Any:
    """How a dataset packed a batch: its tuple or list with the place of each element in place of the element.

    >>> outline_of(("images", "labels")), outline_of(["images", "labels"]), outline_of("images")
    ((0, 1), [0, 1], 0)
    """
    if not isinstance(data, tuple | list) or not is_x_y_weight(data):
        return 0
    if hasattr(data, "_fields"):
        return type(data)(*range(len(data)))
    return type(data)(range(len(data)))


def batch_of(data: Any, class_weight: dict[int, float] | None = None) -> Batch:
    """Make a batch of an element of a dataset, its arrays on the host unless they are the framework's on its device."""
    outline = outline_of(data)
    # Only a model's own step can unpack more than three elements: they stay together.
    parts = unpack(data) if is_x_y_weight(data) else (data, None, None)
    x, y, sample_weight = (map_structure(to_host, part) for part in parts)
    first = next(leaves(x), None)
    if first is None or not first.shape:
        raise InputError(
            f"A dataset must give batches: arrays whose first axis is the sample. Received: {_described(data)}.",
            hint="give the dataset its batch size, such as `dataset.batch(32)`",
        )
    if class_weight is not None and y is not None:
        if sample_weight is not None:
            raise InputError(
                "`class_weight` and sample weights cannot be given together.",
                hint="multiply the sample weights by those of their classes and leave `class_weight` out",
            )
        sample_weight = weights_of_classes(y.cpu() if is_torch_tensor(y) else y, class_weight)
        outline = [0, 1, 2] if isinstance(outline, list) else (0, 1, 2)
    return Batch(x=x, y=y, sample_weight=sample_weight, outline=outline)


def to_host(array: Any) -> Any:
    """An array as NumPy's, without a copy where it is on the CPU. What NumPy cannot hold stays as it is."""
    if isinstance(array, np.ndarray):
        return array
    backend = keras_backend()
    if is_sparse(array):
        native = is_tf_tensor(array) if backend == "tensorflow" else backend == "jax" and not is_tf_tensor(array)
        if native and not type(array).__module__.startswith("scipy."):
            return array
        return SparseRows.of(array).for_model()
    if is_tf_tensor(array):
        if backend == "tensorflow" and (is_tf_ragged(array) or array.dtype.name == "string"):
            return array
        return np.asarray(array.to_tensor() if is_tf_ragged(array) else array)
    if is_torch_tensor(array):
        if backend == "torch" and array.device.type != "cpu":
            return array
        array = array.detach().cpu()
        return array if str(array.dtype) == "torch.bfloat16" else array.numpy()
    if is_jax_array(array) and backend == "jax" and not is_on_cpu(array):
        return array
    return np.asarray(array)


def is_on_cpu(array: Any) -> bool:
    """Whether a JAX array is in the host's memory."""
    return all(device.platform == "cpu" for device in array.devices())


def _described(data: Any) -> str:
    shapes = [tuple(np.shape(leaf)) for leaf in leaves(unpack(data)[0] if is_x_y_weight(data) else data)]
    return f"inputs of shape {', '.join(map(str, shapes))}" if shapes else "no input"
