"""How rows of an array are brought to the host, whoever's array it is: a batch at a time, not all of it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fitroom.train.sources.host import on_cpu
from fitroom.train.sources.recognise import (
    is_jax_array,
    is_pandas,
    is_sparse,
    is_tf_ragged,
    is_tf_tensor,
    is_torch_tensor,
)
from fitroom.train.sources.settings import floatx, keras_backend
from fitroom.train.sources.sparse import SparseRows


def is_array(value: Any) -> bool:
    """Whether it has rows that can be read."""
    return isinstance(value, np.ndarray) or is_sparse(value) or is_tf_tensor(value) or hasattr(value, "__array__")


def reader_of(array: Any) -> tuple[Any, Callable[[Any, Any], Any]]:
    """The array in the form that its rows are read from fastest, without a copy, and how they are read."""
    if is_sparse(array):
        return SparseRows.of(array), lambda rows, which: _in_floatx(rows[which])
    if is_tf_tensor(array):
        if is_tf_ragged(array):
            return array, _tensorflow_rows
        if array.dtype.name == "string" or "CPU" not in array.device:
            return array, _tensorflow_rows
    elif is_torch_tensor(array):
        array = array.detach()
        if array.device.type != "cpu" or str(array.dtype) == "torch.bfloat16":
            return array, _torch_rows
        return array.numpy(), _numpy_rows
    elif is_pandas(array):
        return array, _pandas_rows
    elif is_jax_array(array) and not on_cpu(array):
        return array, _numpy_rows
    return array if isinstance(array, np.ndarray) else np.asarray(array), _numpy_rows


def _numpy_rows(array: Any, which: Any) -> Any:
    return _in_floatx(np.asarray(array[which]))


def _pandas_rows(table: Any, which: Any) -> Any:
    found = table.iloc[which].to_numpy()
    return _in_floatx(found if found.ndim > 1 else found[:, None])  # a column alone has an axis of one, as in Keras


def _torch_rows(tensor: Any, which: Any) -> Any:
    found = tensor[which]
    if found.is_floating_point():
        import torch

        found = found.to(getattr(torch, floatx()))
    return found.cpu().numpy()


def _tensorflow_rows(tensor: Any, which: Any) -> Any:
    import tensorflow as tf

    found = tensor[which] if isinstance(which, slice) else tf.gather(tensor, which)
    if found.dtype.is_floating:
        found = tf.cast(found, floatx())
    if keras_backend() == "tensorflow" and (is_tf_ragged(found) or found.dtype.name == "string"):
        return found
    return np.asarray(found.to_tensor() if is_tf_ragged(found) else found)


def _in_floatx(array: Any) -> Any:
    if array.dtype.name.startswith(("float", "bfloat")):
        return array.astype(floatx(), copy=False)
    return array
