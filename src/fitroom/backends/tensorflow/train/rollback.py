"""Programs that take effect together or not at all.

Values from before are held while a program runs. In a graph, variables that were changed are put back from them. In a
jitted program they are needed for more: XLA changes variables in place if nobody else holds their memory, and when it
then runs out of memory TensorFlow frees that memory under variables that still point to it. What is held is safe.
"""

from types import TracebackType
from typing import Any

import numpy as np
import tensorflow as tf

from fitroom.backends.signals import defer_signals
from fitroom.backends.tensorflow.train.programs import Program

_Values = dict[int, tuple[Any, Any]]
"""Variables and what they held, by the variables' identity."""


class Transaction:
    """What its programs changed is put back when the block is left with an error."""

    def __init__(self) -> None:
        self._before: _Values = {}

    def __enter__(self) -> "Transaction":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is not None:
            _put_back(self._before)
        self._before = {}

    def run(self, program: Program, *arguments: Any) -> Any:
        """Run a program. What it changed is put back where it fails itself, and where a later one does."""
        variables = program.changed(*arguments)
        held: _Values = {}
        if program.is_jitted or any(id(each) not in self._before for each in variables):
            held = {id(each): (each, value) for each, value in zip(variables, program.read(), strict=True)}
        return self._run(program, held, arguments)

    def run_in_place(self, program: Program, *arguments: Any) -> Any:
        """The same for a program that is not jitted, with no memory of the device for values: the host holds them."""
        # Copied: what `numpy()` gives may be the variable's own memory, where that is the host's.
        held = {id(each): (each, np.array(each.numpy())) for each in program.changed(*arguments)}
        return self._run(program, held, arguments)

    def _run(self, program: Program, held: _Values, arguments: tuple[Any, ...]) -> Any:
        previous = self._before
        self._before = held | previous
        try:
            return program(*arguments)
        except BaseException:
            _put_back(held)
            self._before = previous
            raise


def _put_back(values: _Values) -> None:
    with defer_signals():
        for variable, value in values.values():
            with tf.device(variable.device):
                if isinstance(value, np.ndarray):
                    # There may be no memory left for both: what is in the way goes first.
                    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=tf.zeros((0,), variable.dtype))
                tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
