"""The smallest limit of TensorFlow's allocator under which a step runs."""

from collections.abc import Sequence

from fitroom.backends.tensorflow.graph.kernels import Scratch
from fitroom.backends.tensorflow.graph.program import Program
from fitroom.backends.tensorflow.graph.replay import replay
from fitroom.backends.tensorflow.graph.residents import Resident
from fitroom.estimating.allocators.best_fit import DoesNotFit

_PARTS = (1.0, 1.01, 1.02, 1.03, 1.05, 1.07, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0)
"""Limits to try, as parts of the peak."""


def required_bytes(
    program: Program, residents: Sequence[Resident], scratch: Scratch, peak_bytes: int, *, branch: bool
) -> int:
    """The first of a few limits from the peak on under which the replay finds room for every request.

    Free memory that lies in pieces does not hold a large request, so the peak alone may not do.
    """
    for part in _PARTS:
        limit_bytes = int(peak_bytes * part)
        try:
            replay(program, residents, scratch, limit_bytes, branch=branch)
        except DoesNotFit:
            continue
        return limit_bytes
    return int(peak_bytes * _PARTS[-1])
