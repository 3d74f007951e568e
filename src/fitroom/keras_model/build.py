"""Building a model: all variables of it, its optimizer and metrics from a batch, as Keras makes them, or none."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fitroom.batch import Batch
from fitroom.keras_model.private import (
    all_layers,
    build_from_batch,
    compiled_loss,
    compiled_metrics,
    set_uninitialized_variables,
)

FEW_SAMPLES = 2
"""One sample would do as well but for operations that drop axes of one."""

OutOfMemoryTest = Callable[[BaseException], bool]


def build(model: Any, batch: Batch) -> None:
    """Make the variables that training on such batches needs. On an error the model is as it was."""
    if is_built(model):
        build_from_batch(model, batch.data())
        return
    with _restore_on_error(model):
        build_from_batch(model, batch.data())


def build_from_few(model: Any, batch: Batch, *, is_out_of_memory: OutOfMemoryTest, release: Callable[[], None]) -> None:
    """Build a model from a few samples of the batch, for a framework on which Keras may have to run the model for it.

    PyTorch tells shapes without computing ("meta" tensors) for most operations. Where one of them cannot, Keras runs
    the model on the device, with the batch that it was given. The whole batch is given where the model knows its size:
    one with states from batch to batch, with a fixed batch size, or with weights whose shape depends on the batch.
    """
    if is_built(model) or batch.size <= FEW_SAMPLES + 1 or _knows_batch_size(model):
        build(model, batch)
        return
    before = BuildState(model)
    try:
        shapes = _build_first(model, batch, FEW_SAMPLES)
        if any(FEW_SAMPLES in shape for shape in shapes):  # by chance, or the batch's size: another size tells
            before.restore()
            if _build_first(model, batch, FEW_SAMPLES + 1) != shapes:
                before.restore()
                build(model, batch)
        return
    except Exception as error:
        ran_out = is_out_of_memory(error)
    # Here the error is gone, and the frames that its traceback held.
    before.restore()
    release()
    if ran_out:
        build(model, batch.slice(0, 1))
    else:  # a few samples may be what it cannot do with; otherwise this raises what Keras would
        build(model, batch)


def is_built(model: Any) -> bool:
    """Whether a model has all its variables; Keras then needs no batch to build it."""
    parts = (compiled_metrics(model), compiled_loss(model), model.optimizer)
    return all(each.built for each in (*all_layers(model), *(part for part in parts if part is not None)))


def _build_first(model: Any, batch: Batch, samples: int) -> list[tuple[int, ...]]:
    """Build from the first samples; returns the shapes of the new variables."""
    known = {id(variable) for variable in model.variables}
    build_from_batch(model, batch.slice(0, samples).data())
    return [tuple(variable.shape) for variable in model.variables if id(variable) not in known]


def _knows_batch_size(model: Any) -> bool:
    if any(getattr(layer, "stateful", False) for layer in all_layers(model)):
        return True
    try:
        return any(tensor.shape[0] is not None for tensor in model.inputs or ())
    except (AttributeError, ValueError):  # a model that was subclassed has none
        return False


@contextmanager
def _restore_on_error(model: Any) -> Iterator[None]:
    before = BuildState(model)
    try:
        yield
    except BaseException:
        before.restore()
        raise


class BuildState:
    """A snapshot of the attributes of a model, its layers, optimizer, losses and metrics, and of their collections."""

    def __init__(self, model: Any) -> None:
        found = list(_reachable(model))
        self._objects = [(each, dict(vars(each))) for each in found if not _is_collection(each)]
        self._collections = [(each, _copy(each)) for each in found if _is_collection(each)]
        self._random = random.getstate()  # from which layers that are made while building draw their seeds

    def restore(self) -> None:
        """Put attributes, collections and random state back."""
        set_uninitialized_variables([])
        for each, attributes in self._objects:
            vars(each).clear()
            vars(each).update(attributes)
        for collection, content in self._collections:
            _fill(collection, content)
        random.setstate(self._random)


def _reachable(model: Any) -> Iterator[Any]:
    """The model and all objects of Keras that can be reached from it, with the collections on the way."""
    import keras

    kinds = (keras.layers.Layer, keras.metrics.Metric, keras.optimizers.Optimizer, keras.losses.Loss)
    seen: set[int] = set()
    waiting = [model]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if issubclass(type(each), dict):
            waiting += each.values()
        elif issubclass(type(each), list | tuple | set | frozenset):
            waiting += each
        elif isinstance(each, kinds) or _is_keras_helper(each):
            waiting += vars(each).values()
        else:
            continue
        if not isinstance(each, tuple | frozenset):
            yield each


def _is_keras_helper(value: Any) -> bool:
    """Whether it is an internal object of Keras, such as a tracker. Building changes no value of a variable."""
    import keras

    kind = type(value)
    is_keras = kind.__module__.startswith("keras.src.") and hasattr(value, "__dict__")
    return is_keras and not isinstance(value, keras.Variable | keras.KerasTensor | type)


def _is_collection(value: Any) -> bool:
    """By its type, not by `isinstance`: TensorFlow has wrappers that pass for a dict and are none."""
    return issubclass(type(value), list | dict | set)


def _copy(collection: Any) -> Any:
    if isinstance(collection, dict):
        return dict(collection)
    return list(collection)


def _fill(collection: Any, content: Any) -> None:
    """Replace the content by the methods of the plain type: those of Keras's types would track it again."""
    if isinstance(collection, dict):
        dict.clear(collection)
        dict.update(collection, content)
    elif isinstance(collection, set):
        set.clear(collection)
        set.update(collection, content)
    else:
        list.clear(collection)
        list.extend(collection, content)
