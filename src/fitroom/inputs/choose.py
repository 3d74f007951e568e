"""Choose the source of batches for data of any kind that `model.fit` takes."""

from typing import Any

from fitroom.errors import InputError
from fitroom.inputs import kinds
from fitroom.inputs.arrays import ArraySource, num_rows
from fitroom.inputs.columns import Column, is_array
from fitroom.inputs.contract import Source
from fitroom.inputs.py_dataset import PyDatasetSource
from fitroom.inputs.recognise import is_grain, is_py_dataset, is_tf_dataset, is_torch_loader
from fitroom.inputs.streams import StreamSource


def source_of(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    batch_size: int | None = None,
    shuffle: Any = True,
    class_weight: dict[int, float] | None = None,
    steps_per_epoch: int | None = None,
    steps_per_execution: int = 1,
    seed: int = 0,
) -> Source:
    """Make a source of batches, split and ordered as the arguments of `model.fit` say.

    `batch_size` and `shuffle` are for arrays, where `shuffle="batch"` mixes within each batch only; a PyDataset obeys
    `shuffle` with whole batches. Other data bring batches in their own order. A dataset that has a source of
    its own gives it by a method `__fitroom_source__(shuffle=, class_weight=, steps_per_epoch=)`.
    """
    _check_positive(batch_size=batch_size, steps_per_epoch=steps_per_epoch)
    is_arrays = _is_arrays(x)
    if steps_per_epoch is not None and steps_per_epoch % steps_per_execution:
        if is_arrays and batch_size is None:  # Keras counts samples by the steps that were asked for
            batch_size = -(-num_rows(x) // steps_per_epoch)
        # Keras finishes a group of `steps_per_execution` batches that it has begun.
        steps_per_epoch += steps_per_execution - steps_per_epoch % steps_per_execution
    if is_arrays:
        return ArraySource(
            x,
            y,
            sample_weight,
            batch_size=batch_size,
            shuffle=shuffle,
            class_weight=class_weight,
            steps_per_epoch=steps_per_epoch,
            seed=seed,
        )
    _check_alone(x, y=y, sample_weight=sample_weight)
    if (own := getattr(x, "__fitroom_source__", None)) is not None:
        found: Source = own(shuffle=bool(shuffle), class_weight=class_weight, steps_per_epoch=steps_per_epoch)
        return found
    if is_py_dataset(x):
        return PyDatasetSource(
            x, shuffle=shuffle, class_weight=class_weight, steps_per_epoch=steps_per_epoch, seed=seed
        )
    return StreamSource(_kind_of(x), class_weight=class_weight, steps_per_epoch=steps_per_epoch)


def orders_batches(x: Any) -> bool:
    """Whether fitroom draws the order of these data; other data have their own."""
    return _is_arrays(x) or is_py_dataset(x) or hasattr(x, "__fitroom_source__")


def _is_arrays(x: Any) -> bool:
    return x is None or isinstance(x, dict | list | tuple | Column) or is_array(x)


def _kind_of(x: Any) -> kinds.Kind:
    if is_tf_dataset(x):
        return kinds.of_tf_dataset(x)
    if is_torch_loader(x):
        return kinds.of_torch_loader(x)
    if is_grain(x):
        return kinds.of_grain(x)
    if hasattr(x, "__next__"):
        return kinds.of_iterator(x)
    if hasattr(x, "__iter__") and not isinstance(x, str | bytes):
        return kinds.of_iterable(x)
    raise InputError(
        "Data must be arrays, a tf.data.Dataset, a keras.utils.PyDataset, a torch DataLoader, Grain's, a generator or "
        f"another iterable of batches. Received: {str(x)[:80]} of type {type(x).__name__}."
    )


def _check_alone(x: Any, **others: Any) -> None:
    for name, value in others.items():
        if value is not None:
            raise InputError(
                f"`{name}` belongs into the dataset when `x` is one. Received: {name}, and x of {type(x).__name__}.",
                hint="let the dataset give (x, y) or (x, y, sample_weight)",
            )


def _check_positive(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise InputError(f"`{name}` must be at least 1. Received: {number}.")
