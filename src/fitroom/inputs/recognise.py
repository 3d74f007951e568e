"""Which framework an object belongs to, by the names of its classes: nothing has to be imported for it."""

from typing import Any


def is_tf_dataset(value: Any) -> bool:
    """Whether a value is a `tf.data.Dataset`."""
    return _has_class(value, ("DatasetV2",), "tensorflow.")


def is_torch_loader(value: Any) -> bool:
    """Whether a value is a `torch.utils.data.DataLoader`."""
    return _has_class(value, ("DataLoader",), "torch.utils.data")


def is_grain(value: Any) -> bool:
    """Whether a value is Grain's loader or one of its datasets."""
    return _has_class(value, ("MapDataset", "IterDataset", "DataLoader"), "grain.")


def is_py_dataset(value: Any) -> bool:
    """Whether a value is a `keras.utils.PyDataset`; the legacy iterators of images are."""
    return _has_class(value, ("PyDataset",), "keras.")


def is_tf_tensor(value: Any) -> bool:
    """Whether a value is a dense, ragged or sparse tensor of TensorFlow."""
    return _has_class(value, ("Tensor", "RaggedTensor", "SparseTensor"), "tensorflow.")


def is_tf_ragged(value: Any) -> bool:
    """Whether a value is a `tf.RaggedTensor`."""
    return _has_class(value, ("RaggedTensor",), "tensorflow.")


def is_jax_array(value: Any) -> bool:
    """Whether a value is a dense array of JAX."""
    return _has_class(value, ("Array",), "jax")


def is_torch_tensor(value: Any) -> bool:
    """Whether a value is a `torch.Tensor`."""
    return _has_class(value, ("Tensor",), "torch")


def is_sparse(value: Any) -> bool:
    """Whether a value is a sparse array of SciPy, TensorFlow or JAX."""
    module = type(value).__module__
    if module.startswith("scipy.sparse"):
        return hasattr(value, "tocoo")
    return _has_class(value, ("SparseTensor",), "tensorflow.") or module.startswith("jax.experimental.sparse")


def is_pandas(value: Any) -> bool:
    """Whether a value is a table or a column of pandas."""
    return _has_class(value, ("DataFrame", "Series"), "pandas")


def _has_class(value: Any, names: tuple[str, ...], module: str) -> bool:
    # Some versions of jaxlib put the module into the name.
    return any(
        kind.__name__.rpartition(".")[2] in names and kind.__module__.startswith(module) for kind in type(value).__mro__
    )
