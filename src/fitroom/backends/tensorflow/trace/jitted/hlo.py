"""The jitted step as the program that TensorFlow hands to XLA: traced for XLA, lowered, and normalised.

It is lowered for the CPU, the one device that is always there. TensorFlow's kernels for XLA are the same for a GPU:
what differs between the two is made by the compiler, later.
"""

import warnings
from dataclasses import replace
from functools import cache
from typing import Any

import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.python.eager.polymorphic_function.compiler_ir import from_concrete_function

from fitroom.backends.quiet import hold_stderr
from fitroom.backends.tensorflow.trace.light_tracing import light_tracing
from fitroom.backends.tensorflow.trace.step import TensorFlowStep
from fitroom.backends.tensorflow.train.captures import release_with
from fitroom.backends.tensorflow.train.recompute import is_recomputed
from fitroom.errors import ModelError

# The public way, `tf.function(...).experimental_get_compiler_ir`, would trace the whole step a second time.


_DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


def lower_step(step: TensorFlowStep) -> bytes:
    """The step as a serialized `HloModuleProto`: the batch and then the variables are its parameters, and the new
    values of variables its results, each in the place of the old one."""
    _borrow_contents(step)
    device = _device_of(step)
    try:
        _start_xla(device)
        return _lower(step.concrete, tf.nest.flatten(step.specs), device)
    except (ValueError, tf.errors.OpError) as error:
        raise ModelError(
            f"TensorFlow cannot compile this step with XLA: {_reason(error)}",
            hint="`jit_compile=False` trains it without XLA; estimate that with --no-jit",
        ) from error


@cache
def _start_xla(device: str) -> None:
    """XLA introduces itself where it first lowers anything: here it is next to nothing, and nobody hears it.

    What it has to say of the user's own step is then heard.
    """
    spec = tf.TensorSpec(())
    with hold_stderr():
        _lower(tf.function(tf.nn.relu, autograph=False).get_concrete_function(spec), [spec], device)


def _lower(concrete: Any, specs: list[Any], device: str) -> bytes:
    with warnings.catch_warnings(action="ignore"):  # that naming a device is about to go out of fashion
        return bytes(from_concrete_function(concrete, specs)(stage="hlo_serialized", device_name=device))


def _borrow_contents(step: TensorFlowStep) -> None:
    """Give variables without a value memory that is reserved and never touched: XLA wants to see one."""
    contents: dict[Any, Any] = {}
    for found in step.variables:
        if found.variable.is_initialized():
            continue
        kind = (found.shape, found.dtype)
        with tf.device(found.variable.device):
            if kind not in contents:
                contents[kind] = tf.raw_ops.Empty(shape=found.shape, dtype=found.dtype, init=False)
            tf.raw_ops.AssignVariableOp(resource=found.variable.handle, value=contents[kind])


def _device_of(step: TensorFlowStep) -> str:
    return next((str(found.variable.device) for found in step.variables), _DEVICE)


def _reason(error: Exception) -> str:
    """The first line of what TensorFlow says, without its own wrapping."""
    said = str(error).removeprefix("Failed getting HLO text: ").strip("'\"")
    return said.splitlines()[0][:300] if said else type(error).__name__


_TRACED_DIFFERENTLY = ("While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase", "Slice")
"""Operations that TensorFlow, or their gradient, writes in another way where XLA will compile them."""


def trace_for_xla(step: TensorFlowStep) -> TensorFlowStep:
    """The step with the graph that XLA is given; most steps have the same graph either way."""
    operations = step.concrete.graph.get_operations()
    if not any(each.type in _TRACED_DIFFERENTLY or is_recomputed(each.name) for each in operations):
        return step
    jitted = tf.function(step.function, autograph=False, jit_compile=True)
    with light_tracing():
        concrete = jitted.get_concrete_function(step.specs)
    release_with(concrete, concrete.graph)
    return replace(step, concrete=concrete)


def normalise_program(hlo: bytes) -> bytes:
    """The same program without the numbers that TensorFlow gives to functions, and without lines of source files.

    It is then the same, byte for byte, whenever the same step is estimated.
    """
    module = hlo_pb2.HloModuleProto.FromString(hlo)
    module.name = "step"
    module.ClearField("id")
    module.ClearField("stack_frame_index")
    for computation in module.computations:
        if computation.name == module.entry_computation_name:
            computation.name = "step"
        for instruction in computation.instructions:
            op_name = instruction.metadata.op_name
            instruction.ClearField("metadata")
            instruction.metadata.op_name = op_name
    module.entry_computation_name = "step"
    return bytes(module.SerializeToString(deterministic=True))
