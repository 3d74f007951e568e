"""What a backend is asked to recompute: a run of some layers, and the variables that they own."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Run = Callable[[Sequence[Any]], list[Any]]
"""Runs a segment's layers on its input tensors, and returns its output tensors: masks and the losses that layers add
are among them."""


@dataclass(frozen=True, kw_only=True)
class SegmentVariables:
    """The variables that a segment's layers own, layers within layers included, each once and in a fixed order."""

    trainable: tuple[Any, ...]
    """Those that get gradients."""

    non_trainable: tuple[Any, ...]
    """Frozen weights, and statistics such as BatchNormalization's, which a run may change."""

    seeds: tuple[Any, ...]
    """The states of random generators, which a run may change."""

    layers: tuple[Any, ...] = ()
    """The layers themselves, those within layers included."""

    @classmethod
    def of(cls, operations: Iterable[Any]) -> "SegmentVariables":
        """Those of some layers; operations that are no layers own none."""
        layers = [each for each in operations if hasattr(each, "_flatten_layers")]
        trainable = _each_once(variable for layer in layers for variable in layer.trainable_variables)
        seeds = _each_once(
            generator.state
            for layer in layers
            for within in layer._flatten_layers()  # no public name for the layers within layers
            for generator in within._seed_generators
        )
        others = _each_once(
            variable for layer in layers for variable in (*layer.non_trainable_variables, *layer.metrics_variables)
        )
        non_trainable = [variable for key, variable in others.items() if key not in seeds and key not in trainable]
        return cls(
            trainable=tuple(trainable.values()),
            non_trainable=tuple(non_trainable),
            seeds=tuple(seeds.values()),
            layers=tuple(within for layer in layers for within in layer._flatten_layers()),
        )


Recomputed = Callable[[Run, Sequence[Any], SegmentVariables], list[Any]]
"""A backend's `recomputed(run, inputs, variables)`: the outputs of `run(inputs)`, of which only these and the inputs
are kept for the backward pass; the rest is computed again there.

What a run changes in `variables.non_trainable` and `variables.seeds` changes once, by the first run. The second sees
the values that the first saw, so that dropout draws the same mask, and what it would change is thrown away."""


def _each_once(variables: Iterable[Any]) -> dict[int, Any]:
    return {id(variable): variable for variable in variables}
