"""A step run on the card in this machine, on values that are not the model's."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from fitroom.backends.live_card import card_in_this_machine
from fitroom.backends.tensorflow.step import TensorFlowStep
from fitroom.errors import BackendError
from fitroom.estimating.cards import Card

_FIRST_STEPS, _STEADY_STEPS = 3, 4


def check_card(card: Card) -> None:
    """Raise InputError where the card is not in this machine, BackendError where TensorFlow does not see it."""
    card_in_this_machine(card)
    if not tf.config.list_physical_devices("GPU"):
        raise BackendError(
            "TensorFlow does not see the card in this machine.",
            hint="does `tf.config.list_physical_devices('GPU')` show it? `tensorflow[and-cuda]` brings CUDA",
        )


@contextmanager
def lent_zeros(variables: Iterable[Any]) -> Iterator[None]:
    """Give each Keras variable zeros of its own to train on; afterwards it has its own value again, or none."""
    lent = [(variable, variable._value) for variable in variables]
    for variable, _ in lent:
        zeros = tf.zeros(tuple(variable.shape), variable._dtype)
        variable._value = tf.Variable(zeros, trainable=variable.trainable, name=variable.name)
    try:
        yield
    finally:
        for variable, value in lent:
            variable._value = value


def measured_peak_bytes(step: TensorFlowStep, *, jit: bool, device: str = "GPU:0") -> int:
    """The allocator's peak in steady steps, less what was on the device besides the step's own variables."""
    own_bytes = sum(each.size_bytes for each in step.variables)
    before_bytes = tf.config.experimental.get_memory_info(device)["current"] - own_bytes
    with tf.device("CPU:0"):  # from where `fit` copies each batch
        batch = tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), step.specs)
    run = tf.function(step.function, autograph=False, jit_compile=jit)
    try:
        for number in range(_FIRST_STEPS + _STEADY_STEPS):
            if number == _FIRST_STEPS:
                tf.config.experimental.reset_memory_stats(device)
            run(batch)
            tf.test.experimental.sync_devices()
    except tf.errors.ResourceExhaustedError as error:
        raise BackendError(
            "The step ran out of memory on the card.",
            hint="a smaller --batch-size; without --measure it is predicted",
        ) from error
    return int(tf.config.experimental.get_memory_info(device)["peak"]) - int(max(before_bytes, 0))
