"""What the results say: measured and predicted brought together, and summed up."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.cases import CASES, Case
from predict.accuracy import CAPPED, MEASURED, PREDICTED, RESULTS, SMALLEST, read_lines

COLUMNS = {
    "jax": "JAX",
    "torch": "PyTorch",
    "tensorflow-jit": "TensorFlow, `jit_compile=True`",
    "tensorflow-graph": "TensorFlow, graph",
}
"""What is reported apart, by the first word of a case's name."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One case, measured and predicted."""

    case: Case
    measured: dict[str, Any]
    predicted: dict[str, Any]

    @property
    def column(self) -> str:
        """Which of COLUMNS it is in."""
        return next(column for column in COLUMNS if self.case.name.startswith(column + "-"))

    @property
    def error(self) -> float:
        """How far the prediction is off, as a part of what was measured; negative where it is too low."""
        return float(self.predicted["predicted_bytes"] / self.measured["peak_bytes"] - 1)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Errors summed up."""

    cases: int
    median: float
    percentile_95: float
    largest: float
    too_low: int
    lowest: float


def compared(predictions: Path = RESULTS / PREDICTED) -> list[Compared]:
    """Every case that has both figures, in the order of the list."""
    measured = {found["name"]: found for found in read_lines(RESULTS / MEASURED)}
    predicted = {found["name"]: found for found in read_lines(predictions)}
    return [
        Compared(case=case, measured=measured[case.name], predicted=predicted[case.name])
        for case in CASES
        if case.name in measured and case.name in predicted
    ]


def summed_up(errors: Sequence[float]) -> Summary:
    """The figures of merit.

    >>> summed_up([0.01, -0.03, 0.02]).median
    0.02
    """
    sizes = sorted(map(abs, errors))
    return Summary(
        cases=len(errors),
        median=statistics.median(sizes),
        percentile_95=percentile_95(sizes),
        largest=sizes[-1],
        too_low=sum(error < 0 for error in errors),
        lowest=min(errors),
    )


def percentile_95(ordered: Sequence[float]) -> float:
    """The 95th percentile, interpolated.

    >>> percentile_95([0, 1, 2])
    1.9
    """
    place = 0.95 * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def capped() -> list[dict[str, Any]]:
    """The last run of each case under a limit of the predicted `required_bytes`."""
    return list({run["name"]: run for run in read_lines(RESULTS / CAPPED)}.values())


def smallest_caps() -> list[dict[str, Any]]:
    """The smallest limits that were found to work."""
    return read_lines(RESULTS / SMALLEST)
