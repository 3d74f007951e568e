"""A function compiled as the model is, which knows the variables that it changes."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from fitroom.backends.tensorflow.train.captures import release_with

_READING = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape")
"""What can be done with a variable without changing it."""


_SIZES_APART = 3
"""Batches of so many sizes have a graph each; further ones share one that leaves the size open. Keras weighs the losses
of single outputs by the size that a graph knows, and takes it for 1 where it is open."""


class Program:
    """A function of tensors; with `eager` it runs as plain Python."""

    def __init__(
        self,
        function: Callable[..., Any],
        all_variables: Callable[[], Iterable[Any]],
        *,
        jit: bool,
        eager: bool,
        sizes_apart: int | None = _SIZES_APART,
    ) -> None:
        """`all_variables` are the Keras variables to go by where there is no graph to look into. With `sizes_apart`
        None every size of a batch has a graph of its own."""
        self._sizes_apart = sizes_apart
        self.is_jitted = jit and not eager
        self._run: Any = function
        if not eager:
            self._run = tf.function(function, autograph=False, jit_compile=jit)
            self._run_any = tf.function(function, autograph=False, reduce_retracing=True, jit_compile=jit)
        self._all_variables, self._eager = all_variables, eager
        self._known: dict[tuple[Any, ...], Any] = {}
        self._changed: list[Any] | None = None
        self._read: Callable[[], list[Any]] = list

    def __call__(self, *arguments: Any) -> Any:
        """Run it."""
        if self._eager:
            return self._run(*arguments)
        # Called by its front door TensorFlow looks at what each argument is, which takes longer than all else here:
        # 5 ms where there are hundreds of them, before the card hears of anything.
        tensors = leaves = tf.nest.flatten(arguments)
        if not all(isinstance(each, tf.Tensor) for each in leaves):
            arguments = tf.nest.map_structure(_as_tensor, arguments)
            leaves = tf.nest.flatten(arguments)
            tensors = [each for each in tf.nest.flatten(arguments, expand_composites=True) if each is not None]
        key = (_form(arguments), *map(_kind, leaves))
        if key not in self._known:
            self._known[key] = self._traced(arguments)
        known = self._known[key]
        return known._call_flat(tensors, known.captured_inputs)

    def changed(self, *arguments: Any) -> list[Any]:
        """The `tf.Variable`s that a run on such arguments may change; it is traced for that, if it never was."""
        if self._changed is None:
            changed = self._found(arguments)
            self._changed = changed
            reading = tf.function(lambda: [each.read_value() for each in changed], autograph=False)
            self._read = reading.get_concrete_function()
        return self._changed

    def read(self) -> list[Any]:
        """The values of those variables, in memory that they share with them until they are changed."""
        return self._read()

    def _traced(self, arguments: tuple[Any, ...]) -> Any:
        is_apart = self._sizes_apart is None or len(self._known) < self._sizes_apart
        run = self._run if is_apart else self._run_any
        concrete = run.get_concrete_function(*arguments)
        release_with(self, concrete.graph)
        return concrete

    def _found(self, arguments: tuple[Any, ...]) -> list[Any]:
        if self._eager:
            found = [replica for each in self._all_variables() for replica in replicas_of(each.value)]
            return list({id(each): each for each in found}.values())
        graph = self._traced(arguments).graph
        variables = [replica for each in graph.variables for replica in replicas_of(each)]
        by_handle = {id(variable.handle): variable for variable in variables}
        return [
            by_handle[id(outer)]
            for outer, inner in graph.captures
            if id(outer) in by_handle and any(use.type not in _READING for use in inner.consumers())
        ]


def replicas_of(variable: Any) -> tuple[Any, ...]:
    """The variables of single devices that a variable consists of; itself where it is none of a strategy's."""
    is_distributed = isinstance(variable, tf.distribute.DistributedValues)
    return tuple(variable.values) if is_distributed else (variable,)


def _as_tensor(value: Any) -> Any:
    return tf.convert_to_tensor(value) if isinstance(value, np.ndarray | np.generic) else value


def _kind(value: Any) -> Any:
    """What a graph goes by: of a sparse or ragged tensor not how many values it happens to have."""
    if isinstance(value, tf.Tensor):
        return value._shape_tuple(), value._datatype_enum()
    return None if value is None else tf.type_spec_from_value(value)


def _form(structure: Any) -> Any:
    """What it is without its tensors."""
    if isinstance(structure, dict):
        return tuple((name, _form(structure[name])) for name in sorted(structure))
    return tuple(map(_form, structure)) if isinstance(structure, list | tuple) else None
