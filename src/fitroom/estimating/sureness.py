"""How wrong estimates of models like the one at hand were, by method, kind of model and size.

The figures are in errors.json beside this file, made by benchmarks/predict/calibration.py of steps that were measured
on a card and that no rule was fitted on.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from fitroom.backends.tensorflow.trace.jitted.library import near_version
from fitroom.memory.estimate import Estimate, SeenError

LEAST_CASES = 5
"""Fewer measured steps than these tell nothing about their kind or size."""

SIZES = ("up to 1 GiB", "1 to 4 GiB", "over 4 GiB")

_TABLE = Path(__file__).with_name("errors.json")
_SIZE_LIMITS = (2**30, 4 * 2**30)


def size_of(peak_bytes: int) -> str:
    """Which of `SIZES` a peak is.

    >>> size_of(3 * 2**30)
    '1 to 4 GiB'
    """
    return SIZES[sum(peak_bytes > limit for limit in _SIZE_LIMITS)]


def name_group(backend: str, method: str, versions: Mapping[str, str]) -> str:
    """Name the way in which a step was predicted: by backend, method, and on XLA by which compiler.

    >>> name_group("tensorflow", "traced", {}), name_group("jax", "traced", {"compiler": "none"})
    ('tensorflow-graph', 'jax, no compiler')
    """
    compiler = versions.get("compiler", "none").split()[-1]
    if backend == "tensorflow" and method == "traced":
        return "tensorflow-graph"
    if backend == "tensorflow":
        is_near = compiler == near_version(versions.get("tensorflow", ""))
        return "tensorflow-jit" if is_near else "tensorflow-jit, other compiler"
    if backend != "jax":
        return backend
    if method == "traced":
        return "jax, no compiler" if compiler == "none" else "jax, without jit"
    return "jax" if compiler == versions.get("jaxlib") else "jax, other compiler"


def with_seen_error(estimate: Estimate, kind: str) -> Estimate:
    """Return an estimate with the error of models like it as its typical error; as it is where that is not known."""
    if not estimate.training or estimate.method == "measured":
        return estimate
    found = error_of_like(estimate, kind)
    return estimate if found is None else replace(estimate, seen_error=found, typical_error=found.median)


def error_of_like(estimate: Estimate, kind: str) -> SeenError | None:
    """Return how wrong estimates like this one were; None where none like it was measured.

    The most specific of these that has figures: steps of this kind and size, of this kind, of this size, all steps that
    were predicted in this way.
    """
    cells = _groups().get(name_group(estimate.backend, estimate.method, estimate.versions), {})
    size = size_of(estimate.peak_bytes)
    for cell, words in (
        (f"{kind}, {size}", f"models with {kind} that take {size}"),
        (kind, f"models with {kind}"),
        (size, f"models of all kinds that take {size}"),
        ("all", "models of all kinds"),
    ):
        if found := cells.get(cell):
            return SeenError(
                cases=found["cases"], median=found["median"], percentile_95=found["percentile_95"], of=words
            )
    return None


@cache
def _groups() -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = json.loads(_TABLE.read_text())["groups"]
    return groups
