"""The step traced as `jit_compile=True` traces it."""

from dataclasses import replace

import tensorflow as tf

from fitroom.backends.tensorflow.trace.step import TensorFlowStep
from fitroom.backends.tensorflow.train.captured import let_go_with
from fitroom.backends.tensorflow.train.recompute import is_recomputed

_TRACED_DIFFERENTLY = ("While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase", "Slice")
"""Operations that TensorFlow, or their gradient, writes in another way where XLA will compile them."""


def as_jitted(step: TensorFlowStep) -> TensorFlowStep:
    """The step with the graph that XLA is given; most steps have the same graph either way."""
    operations = step.concrete.graph.get_operations()
    if not any(each.type in _TRACED_DIFFERENTLY or is_recomputed(each.name) for each in operations):
        return step
    jitted = tf.function(step.function, autograph=False, jit_compile=True)
    concrete = jitted.get_concrete_function(step.specs)
    let_go_with(concrete, concrete.graph)
    return replace(step, concrete=concrete)
