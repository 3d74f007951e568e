"""Segments that TensorFlow computes again in the backward pass, in graph mode and jitted."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.python.xla import optimization_barrier  # no public name
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext  # no public name tells who will compile

from fitroom.backends.keras_held_back import HeldBack
from fitroom.backends.keras_segment import Run, SegmentVariables

SCOPE = "recomputed"
"""Stands in the names of operations that are run again."""

_Values = Sequence[tuple[Any, Any]]
"""Variables, each with a value."""


def recomputed(run: Run, inputs: Sequence[Any], variables: SegmentVariables) -> list[Any]:
    """Run one segment so that for the backward pass only `inputs` and the outputs are kept.

    The segment becomes a function of its inputs and its weights. What it changes is held back while it runs, and takes
    effect after the first run alone.
    """
    num_inputs = len(inputs)

    def outputs_of(given: Sequence[Any], state: _Values) -> tuple[list[Any], _Values]:
        weights = zip(variables.trainable, given[num_inputs:], strict=True)
        with HeldBack([*weights, *state]) as scope:
            outputs = run(given[:num_inputs])
        return outputs, scope.changes

    changes: list[tuple[Any, Any]] = []

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def segment(*given: Any) -> Any:
        outputs, changed = outputs_of(given, ())
        changes.extend(changed)
        before = [(variable, tf.convert_to_tensor(variable._value)) for variable, _ in changed]

        def gradient(*upstream: Any) -> Any:
            with tf.name_scope(SCOPE), _not_before(given, upstream) as (sources, upstream):
                with tf.GradientTape() as tape:
                    tape.watch([each for each in sources if each.dtype.is_floating])
                    outputs, _ = outputs_of(sources, before)
            pairs = [pair for pair in zip(outputs, upstream, strict=True) if pair[0].dtype.is_floating]
            return tape.gradient([each for each, _ in pairs], sources, output_gradients=[each for _, each in pairs])

        return outputs, gradient

    outputs = segment(*inputs, *(tf.convert_to_tensor(variable._value) for variable in variables.trainable))
    for variable, value in changes:
        variable.assign(value)
    return list(outputs)


@contextmanager
def _not_before(given: Sequence[Any], upstream: Sequence[Any]) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
    """The same tensors; what is made of them waits for all of `upstream`, and is not what the first run made."""
    if GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        passed = optimization_barrier(*given, *upstream)
        yield passed[: len(given)], passed[len(given) :]
        return
    with tf.control_dependencies(upstream):
        yield [tf.identity(each) for each in given], upstream
