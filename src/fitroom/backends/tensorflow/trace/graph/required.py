"""The smallest limit of TensorFlow's allocator under which a step runs."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from fitroom.backends.tensorflow.trace.graph.replay import RecordedProcess, ReplayedStep
from fitroom.memory.allocators.best_fit import DoesNotFitError

_FACTORS = (1.0, 1.02, 1.04, 1.06, 1.08, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0)
"""Limits to try, as multiples of the peak."""

MARGIN_SHARE = 0.06
"""A share of the peak: what a replay may be too low by. In the benchmark of accuracy one of 33 peaks is further off,
and with 3 % three steps ran out of memory on the card that no replay lets run out."""


_SMALL_BYTES = 2**20


def required_bytes(processes: Sequence[RecordedProcess], usual: ReplayedStep) -> int:
    """The first of a few limits from the peak on under which replays find room for every request, and a margin.

    Several processes are replayed: how memory falls into pieces differs from one to the next.

    Free memory that lies in pieces does not hold a large request, so the peak alone may not do. Workspaces that do
    not fit are done without, as TensorFlow then picks another algorithm.
    """
    peak_bytes = usual.peak_bytes
    factors = list(_FACTORS)
    for process in processes:
        while len(factors) > 1 and not _runs(process, int(peak_bytes * factors[0])):
            del factors[0]
    return int(peak_bytes * factors[0] * (1 + MARGIN_SHARE)) + lost_bytes(usual)


def lost_bytes(usual: ReplayedStep) -> int:
    """The most that small chunks have beyond what was asked for: in another process it may be as much again.

    A loop asks for the same sizes again and again, so that one chunk given away whole is one in each of its rounds. And
    it keeps more small things where the size of a batch shows only while it runs, as with a `PyDataset`: shapes, for
    the backward pass. On an H200 an LSTM of 200 rounds so lost twice as much as in any replay, 14 % of its peak.
    """
    changes: Counter[int] = Counter()
    for span in usual.spans:
        if span.held.size_bytes < _SMALL_BYTES:
            lost = span.held.size_bytes - span.held.asked_bytes
            changes[span.first] += lost
            changes[span.last + 1] -= lost
    return max(accumulate(changes[moment] for moment in sorted(changes)), default=0)


def _runs(process: RecordedProcess, limit_bytes: int) -> bool:
    try:
        process.replay(limit_bytes, num_steady=1, strewn=True)
    except DoesNotFitError:
        return False
    return True
