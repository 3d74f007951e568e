"""The arrays of a whole data set, of any framework, whose rows are read for each batch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitroom.batch import leaves
from fitroom.errors import InputError
from fitroom.inputs.host import is_on_cpu
from fitroom.inputs.keras_loader import floatx, keras_backend
from fitroom.inputs.recognise import (
    is_jax_array,
    is_pandas,
    is_sparse,
    is_tf_ragged,
    is_tf_tensor,
    is_torch_tensor,
)
from fitroom.inputs.sparse import SparseRows


@dataclass(frozen=True, kw_only=True)
class Column:
    """One array of the data, or a range of its rows. Floats are read in Keras's `floatx`, as in `fit`."""

    array: Any
    read: Callable[[Any, Any], Any]
    """Rows of `array` as the host holds them: by a slice, or by their numbers."""

    start: int
    stop: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the rows of this column; TensorFlow's ragged axes are -1."""
        rest = tuple(-1 if size is None else int(size) for size in tuple(self.array.shape)[1:])
        return (self.stop - self.start, *rest)

    @property
    def dtype(self) -> str:
        """The name of the dtype as it was given."""
        dtype = getattr(self.array, "dtype", None)
        if dtype is None:  # a table has one for each of its columns
            return ",".join(sorted({str(found) for found in self.array.dtypes}))
        return str(getattr(dtype, "name", dtype)).removeprefix("torch.")

    def slice(self, start: int, stop: int) -> "Column":
        """The rows from `start` to `stop`, copied when they are read."""
        return Column(array=self.array, read=self.read, start=self.start + start, stop=self.start + stop)

    def rows(self, which: Any) -> Any:
        """Read rows by a slice with both ends, or by an array of their numbers."""
        if isinstance(which, slice):
            which = slice(self.start + which.start, self.start + which.stop)
        else:
            which = which + self.start
        found = self.read(self.array, which)
        return found.for_model() if isinstance(found, SparseRows) else found


def column_of(array: Any) -> Column:
    """Make a column of an array of any framework. Raises InputError for what is no array, or has no rows."""
    if isinstance(array, Column):
        return array
    array, read = reader_of(array)
    shape = tuple(array.shape)
    if not shape:
        raise InputError(
            f"Arrays of data must have a first axis for the samples. Received: a single value, {array!r}.",
            hint="give a list or an array of samples",
        )
    return Column(array=array, read=read, start=0, stop=int(shape[0]))


def columns_of(structure: Any) -> Any:
    """Make columns of a structure of arrays; a list of plain numbers or texts is an array."""
    if structure is None:
        return None
    if isinstance(structure, dict):
        return {key: columns_of(value) for key, value in structure.items()}
    if isinstance(structure, list | tuple):
        if _is_plain(structure):
            try:
                return column_of(np.asarray(structure))
            except ValueError as error:  # rows of different lengths
                raise InputError(f"A list of samples cannot be made an array: {error}.") from error
        return [columns_of(value) for value in structure] if isinstance(structure, list) else _tuple_of(structure)
    if isinstance(structure, Column) or is_array(structure):
        return column_of(structure)
    raise InputError(
        "Data must be arrays, or lists, tuples and dicts of them, or a dataset. "
        f"Received: {str(structure)[:80]} of type {type(structure).__name__}."
    )


def _tuple_of(structure: tuple[Any, ...]) -> Any:
    found = [columns_of(value) for value in structure]
    return type(structure)(*found) if hasattr(structure, "_fields") else tuple(found)


def _is_plain(structure: Any) -> bool:
    found = list(leaves(structure))
    return bool(found) and all(isinstance(leaf, bool | int | float | str | bytes | np.generic) for leaf in found)


def is_array(value: Any) -> bool:
    """Whether a value is an array whose rows can be read."""
    return isinstance(value, np.ndarray) or is_sparse(value) or is_tf_tensor(value) or hasattr(value, "__array__")


def reader_of(array: Any) -> tuple[Any, Callable[[Any, Any], Any]]:
    """The array in the form from which rows are read fastest, without a copy, and the function that reads them."""
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
    elif is_jax_array(array) and not is_on_cpu(array):
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
