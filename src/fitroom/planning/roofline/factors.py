"""How far from the ideal each framework is: measured, by `benchmarks/predict/speed_factors.py`."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from fitroom.planning.roofline.work import KINDS, Array

FEATURES = (*KINDS, "weights", "launches", "steps")
"""What the seconds of a step are a sum of: the ideal seconds of each kind of work, and of moving the weights, each so
many times as long in truth; and seconds for each launch of a kernel and for each step."""

CLASSES = ("float32", "half")
"""Of precisions: two bytes a number behave alike."""


def mode_of(backend: str, jit: bool) -> str:
    """The ways of running a step that differ in speed.

    >>> mode_of("tensorflow", True), mode_of("jax", True)
    ('tensorflow-jit', 'jax')
    """
    return backend if backend != "tensorflow" else "tensorflow-jit" if jit else "tensorflow-graph"


@cache
def factors_of(mode: str, precision: str) -> Array:
    """In the order of `FEATURES`."""
    import numpy as np

    found = known_factors()[mode][CLASSES[precision != "float32"]]
    return np.array([found[name] for name in FEATURES])


@cache
def known_factors() -> Mapping[str, Any]:
    """By mode and class of precision."""
    text = resources.files("fitroom.planning.roofline").joinpath("factors.json").read_text(encoding="utf-8")
    modes: Mapping[str, Any] = json.loads(text)["modes"]
    return modes
