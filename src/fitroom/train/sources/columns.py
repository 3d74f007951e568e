"""The arrays of a whole data set, to cut batches from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitroom.errors import InputError
from fitroom.train.sources.rows import is_array, reader_of
from fitroom.train.sources.sparse import SparseRows
from fitroom.train.structure import leaves


@dataclass(frozen=True, kw_only=True)
class Column:
    """One array of the data, or a stretch of its rows. Floats come out in Keras's `floatx`, as they do in `fit`."""

    array: Any
    read: Callable[[Any, Any], Any]
    """Rows of `array` as the host holds them: by a slice, or by their numbers."""

    start: int
    stop: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the rows of this column; TensorFlow's ragged axes are -1."""
        rest = tuple(-1 if size is None else int(size) for size in tuple(self.array.shape)[1:])
        return (self.stop - self.start, *rest)

    @property
    def dtype(self) -> str:
        """The name of the dtype as it was given."""
        dtype = getattr(self.array, "dtype", None)
        if dtype is None:  # a table has one for each of its columns
            return ",".join(sorted({str(found) for found in self.array.dtypes}))
        return str(getattr(dtype, "name", dtype)).removeprefix("torch.")

    def part(self, start: int, stop: int) -> "Column":
        """Some of its rows, copied when they are read."""
        return Column(array=self.array, read=self.read, start=self.start + start, stop=self.start + stop)

    def rows(self, which: Any) -> Any:
        """Rows by a slice with both ends, or by an array of their numbers."""
        if isinstance(which, slice):
            which = slice(self.start + which.start, self.start + which.stop)
        else:
            which = which + self.start
        found = self.read(self.array, which)
        return found.for_model() if isinstance(found, SparseRows) else found


def column_of(array: Any) -> Column:
    """An array of whatever framework as a column. Raises InputError for what is no array, or has no rows."""
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
    """A structure of arrays as columns; a list of plain numbers or words is an array."""
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
