"""Which parameter of the compiled program is which variable, or part of the batch."""

from collections.abc import Iterator

import tensorflow as tf

from fitroom.backends.tensorflow.trace.step import StepVariable, TensorFlowStep
from fitroom.backends.xla.attribution import Argument
from fitroom.backends.xla.dump import Dump
from fitroom.errors import CompilerError


def arguments_of(step: TensorFlowStep, dump: Dump) -> tuple[Argument, ...]:
    """The program's parameters in their order, then the variables that are on the card but not used by the step."""
    given = _given(step)
    # TensorFlow makes constants of what an operation must know beforehand; the order stays.
    parameters = [next((a for a in given if a.size_bytes == size), None) for size in _parameter_sizes(dump)]
    found = [argument for argument in parameters if argument is not None]
    if len(found) < len(parameters):
        raise CompilerError(
            f"The program that TensorFlow made takes {len(parameters)} arrays, of which the step gives {len(found)}.",
            hint="please report this with the model; `--no-jit` estimates the step without XLA",
        )
    used = {id(variable) for variable in step.captures().values()}
    return (*found, *(_of_variable(variable) for variable in step.variables if id(variable) not in used))


def _given(step: TensorFlowStep) -> Iterator[Argument]:
    for spec in tf.nest.flatten(step.specs):
        yield Argument(size_bytes=_size_bytes(spec), kind="input", layer=None)
    captures = step.captures()
    for tensor in step.concrete.inputs:
        if tensor.op.name in captures:
            variable = captures[tensor.op.name]
            other = Argument(size_bytes=_size_bytes(tensor), kind="other", layer=None)
            yield _of_variable(variable) if variable else other


def _of_variable(variable: StepVariable) -> Argument:
    return Argument(size_bytes=variable.size_bytes, kind=variable.kind, layer=variable.layer)


def _parameter_sizes(dump: Dump) -> list[int]:
    sizes = {a.parameter: a.size_bytes for a in dump.allocations if a.parameter is not None}
    return [sizes[parameter] for parameter in sorted(sizes)]


def _size_bytes(tensor: tf.TensorSpec) -> int:
    return int(tensor.dtype.size * (tensor.shape.num_elements() or 0))
