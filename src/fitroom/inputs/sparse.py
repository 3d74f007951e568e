"""Sparse arrays: rows read from those of any framework, and given to a model in the form that Keras gives them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fitroom.inputs.keras_loader import keras_backend


@dataclass(frozen=True, kw_only=True)
class SparseRows:
    """Coordinates and values, sorted by row, so that rows can be taken in any order."""

    indices: Any
    values: Any
    shape: tuple[int, ...]

    @classmethod
    def of(cls, array: Any) -> "SparseRows":
        """Convert a sparse array of SciPy, TensorFlow or JAX."""
        module = type(array).__module__
        if module.startswith("scipy."):
            coordinates = array.tocsr().tocoo()
            indices, values = np.stack([coordinates.row, coordinates.col], axis=1), coordinates.data
        elif module.startswith("jax."):
            array = array.to_bcoo() if hasattr(array, "to_bcoo") else array
            indices, values = np.asarray(array.indices), np.asarray(array.data)
            filled = indices[:, 0] < array.shape[0]  # JAX pads with rows that are not there
            indices, values = indices[filled], values[filled]
        else:
            indices, values = np.asarray(array.indices), np.asarray(array.values)
        order = np.argsort(indices[:, 0], kind="stable")
        return cls(indices=indices[order], values=values[order], shape=tuple(int(size) for size in array.shape))

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return self.values.dtype

    def astype(self, dtype: str, copy: bool = False) -> "SparseRows":
        """The same rows with values of another dtype."""
        return SparseRows(indices=self.indices, values=self.values.astype(dtype, copy=copy), shape=self.shape)

    def __getitem__(self, which: Any) -> "SparseRows":
        """The rows of a slice, or of numbers in any order."""
        rows = np.arange(*which.indices(self.shape[0])) if isinstance(which, slice) else np.asarray(which)
        starts = np.searchsorted(self.indices[:, 0], rows, side="left")
        counts = np.searchsorted(self.indices[:, 0], rows, side="right") - starts
        before = np.cumsum(counts) - counts
        places = np.repeat(starts - before, counts) + np.arange(counts.sum())
        indices = self.indices[places]
        indices[:, 0] = np.repeat(np.arange(len(rows)), counts)
        return SparseRows(indices=indices, values=self.values[places], shape=(len(rows), *self.shape[1:]))

    def for_model(self) -> Any:
        """The rows for a model: a `tf.SparseTensor`, JAX's `BCOO`, or, for PyTorch, a dense array."""
        backend = keras_backend()
        if backend == "tensorflow":
            import tensorflow as tf

            return tf.SparseTensor(self.indices.astype("int64"), self.values, self.shape)
        if backend == "jax":
            import jax
            from jax.experimental.sparse import BCOO

            with jax.default_device(jax.local_devices(backend="cpu")[0]):
                return BCOO((self.values, self.indices), shape=self.shape)
        dense = np.zeros(self.shape, self.values.dtype)
        np.add.at(dense, tuple(self.indices.T), self.values)  # coordinates may come twice
        return dense
