"""Segments that TensorFlow recomputes in the backward pass, in graph mode and jitted."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.python.xla import optimization_barrier  # no public name
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext  # no public name tells who will compile

from fitroom.backends.tensorflow.train.captures import hold_until_released
from fitroom.keras_model.segmented_call import Run, SegmentVariables
from fitroom.keras_model.state import IsolatedScope

SCOPE = "recomputed"
"""What is computed again in the backward pass lies in a scope of this name."""

_RECOMPUTED = re.compile(rf"(?:^|/){SCOPE}(?:_\d+)?/")

_Values = Sequence[tuple[Any, Any]]
"""Variables, each with a value."""


def recompute_segment(run: Run, inputs: Sequence[Any], variables: SegmentVariables) -> list[Any]:
    """Run one segment so that for the backward pass only `inputs` and the outputs are kept.

    The segment becomes a function of its inputs and its variables' values. What it changes is held back while it runs,
    and takes effect after the first run alone.
    """
    owned = (*variables.trainable, *variables.non_trainable, *variables.seeds)
    num_inputs, num_sources = len(inputs), len(inputs) + len(variables.trainable)
    place = hold_until_released(run=run, owned=owned, before=())

    def outputs_of(given: Sequence[Any], others: _Values) -> tuple[list[Any], _Values]:
        with IsolatedScope([*zip(place.owned, given[num_inputs:], strict=True), *others]) as scope:
            outputs = place.run(given[:num_inputs])
        return outputs, scope.changes

    changes: list[tuple[Any, Any]] = []

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def segment(*given: Any) -> Any:
        outputs, changed = outputs_of(given, ())
        changes.extend(changed)
        place.before = [(variable, tf.convert_to_tensor(variable._value)) for variable, _ in changed]

        def gradient(*upstream: Any) -> Any:
            again = _not_before(given, upstream)
            with tf.name_scope(SCOPE), again as (given_again, arrived), tf.GradientTape() as tape:
                sources = given_again[:num_sources]
                tape.watch([each for each in sources if each.dtype.is_floating])
                outputs, _ = outputs_of(given_again, place.before)
            pairs = [pair for pair in zip(outputs, arrived, strict=True) if pair[0].dtype.is_floating]
            found = tape.gradient([each for each, _ in pairs], sources, output_gradients=[each for _, each in pairs])
            return [*found, *[None] * (len(given) - num_sources)]

        return outputs, gradient

    outputs = segment(*inputs, *(tf.convert_to_tensor(variable._value) for variable in owned))
    for variable, value in changes:
        with tf.name_scope(variable.path.rpartition("/")[0]):  # as if the layer did it
            variable.assign(value)
    changes.clear()
    return list(outputs)


def is_recomputed(name: str) -> bool:
    """Whether an operation of this name is part of a second run; not the backward pass through it."""
    return "gradient_tape" not in name and _RECOMPUTED.search(name) is not None


@contextmanager
def _not_before(given: Sequence[Any], upstream: Sequence[Any]) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
    """The same tensors; what is made of them waits for all of `upstream`, and is not what the first run made."""
    if GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        passed = optimization_barrier(*given, *upstream)
        yield passed[: len(given)], passed[len(given) :]
        return
    with tf.control_dependencies(upstream):
        yield [tf.identity(each) for each in given], upstream
