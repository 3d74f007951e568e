"""A step run on the card in this machine, on values that are not the model's."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from fitroom.backends.tensorflow.trace.micro_batches import MicroBatchStep
from fitroom.backends.tensorflow.trace.step import StepVariable, TensorFlowStep
from fitroom.backends.tensorflow.train.captures import release_with
from fitroom.backends.tensorflow.train.stepper import TensorFlowStepper
from fitroom.batch import Batch
from fitroom.cards.catalogue import Card
from fitroom.cards.nvml import find_live_gpu
from fitroom.errors import BackendError
from fitroom.memory.step import StepRequest

_FIRST_STEPS, _STEADY_STEPS = 3, 4


def check_card(card: Card) -> None:
    """Raise InputError where the card is not in this machine, BackendError where TensorFlow does not see it."""
    find_live_gpu(card)
    if not tf.config.list_physical_devices("GPU"):
        raise BackendError(
            "TensorFlow does not see the card in this machine.",
            hint="does `tf.config.list_physical_devices('GPU')` show it? `tensorflow[and-cuda]` brings CUDA",
        )


@contextmanager
def borrow_zeros(variables: Iterable[Any]) -> Iterator[None]:
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


def measure_peak_bytes(step: TensorFlowStep, *, jit: bool, device: str = "GPU:0") -> int:
    """The allocator's peak in steady steps, less what was on the device besides the step's own variables."""
    before_bytes = _besides_bytes(step.variables, device)
    batch = _zeros_of(step.specs)
    run = tf.function(step.function, autograph=False, jit_compile=jit).get_concrete_function(batch)
    release_with(run, run.graph)
    return _steady_peak_bytes(lambda: run(batch), before_bytes, device)


def measure_micro_batches_peak_bytes(
    step: MicroBatchStep, model: Any, request: StepRequest, *, jit: bool, device: str = "GPU:0"
) -> int:
    """The same of a batch in micro-batches, as `fitroom.fit` carries it out. The model is lent the step's variables."""
    before_bytes = _besides_bytes([each for each in step.micro_batch.variables if each.kind != "gradients"], device)
    specs = tf.nest.map_structure(
        lambda spec: tf.TensorSpec((request.batch_size, *spec.shape[1:]), spec.dtype), step.micro_batch.specs
    )
    x, y = _zeros_of(specs)
    stepper, batch = TensorFlowStepper(model, jit=jit, remat=request.recipe.remat), Batch(x=x, y=y)
    micro_batch = request.recipe.samples_at_once(request.batch_size)
    return _steady_peak_bytes(lambda: stepper.train(batch, micro_batch), before_bytes, device)


def _zeros_of(specs: Any) -> Any:
    with tf.device("CPU:0"):  # from where `fit` copies each batch
        return tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), specs)


def _besides_bytes(variables: Iterable[StepVariable], device: str) -> int:
    """What is on the device besides the variables."""
    in_use_bytes = int(tf.config.experimental.get_memory_info(device)["current"])
    return max(in_use_bytes - sum(each.size_bytes for each in variables), 0)


def _steady_peak_bytes(run: Callable[[], Any], before_bytes: int, device: str) -> int:
    try:
        for number in range(_FIRST_STEPS + _STEADY_STEPS):
            if number == _FIRST_STEPS:
                tf.config.experimental.reset_memory_stats(device)
            run()
            tf.test.experimental.sync_devices()
    except tf.errors.ResourceExhaustedError as error:
        raise BackendError(
            "The step ran out of memory on the card.",
            hint="a smaller --batch-size; without --measure it is predicted",
        ) from error
    return int(tf.config.experimental.get_memory_info(device)["peak"]) - before_bytes
