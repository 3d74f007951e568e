"""Predicts the seconds of a training step: ideal seconds of its work on a card, times measured factors.

The factors in `factors.json` say how far each framework is from the ideal; `benchmarks/predict/speed_factors.py` fits
them.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from importlib import resources
from typing import Any

from fitroom.batch import micro_batch_sizes
from fitroom.cards.catalogue import Card
from fitroom.planning.option import Speed
from fitroom.planning.roofline.work import KINDS, Array, Work, count_work
from fitroom.remat.chain import Chain, chain_of
from fitroom.remat.graph import functional_of, layer_graph
from fitroom.remat.segmentation import Segment

FEATURES = (*KINDS, "weights", "launches", "steps")
"""The terms that add up to the seconds of a step: the ideal seconds of each kind of work and of moving the weights,
each multiplied by its factor, and seconds for each kernel launch and each step."""

OVERLAPPING = ("torch-fused",)
"""Modes in which the host prepares kernels while the card computes: a step takes as long as the slower of the two. In
the others the sum was nearer to what was measured."""

CLASSES = ("float32", "half")
"""Precisions with factors of their own: all with two bytes a number share one set."""


def mode_of(backend: str, jit: bool, kernels: str | None = None) -> str:
    """Return the name of the way to run a step, as `factors.json` has it.

    >>> mode_of("tensorflow", True), mode_of("jax", True), mode_of("torch", False, "fused")
    ('tensorflow-jit', 'jax', 'torch-fused')
    """
    if kernels == "fused" and backend == "torch":  # of TensorFlow's fused steps one is timed, which is too few
        return "torch-fused"
    return backend if backend != "tensorflow" else "tensorflow-jit" if jit else "tensorflow-graph"


@cache
def factors_of(mode: str, precision: str) -> Array:
    """The factors of a mode and a precision, in the order of `FEATURES`."""
    import numpy as np

    found = known_factors()[mode][CLASSES[precision != "float32"]]
    return np.array([found[name] for name in FEATURES])


@cache
def known_factors() -> Mapping[str, Any]:
    """All measured factors, by mode and class of precision."""
    text = resources.files("fitroom.planning.roofline").joinpath("factors.json").read_text(encoding="utf-8")
    modes: Mapping[str, Any] = json.loads(text)["modes"]
    return modes


ON_MATRIX_UNITS = ("convolution", "matrix")
"""Kinds of work that tensor cores do, where a card has them for the precision."""


def ideal_seconds(work: Work, card: Card, *, backend: str, precision: str) -> Array:
    """Return the ideal seconds of each call and kind of work, in the forward pass of one sample."""
    import numpy as np

    rates = np.array([_rate(card, kind, backend, precision) for kind in KINDS])
    moved = work.elements * item_bytes(precision)
    return work.operations / rates + moved / card.bandwidth_bytes_per_second


def item_bytes(precision: str) -> int:
    """The size of one number of a layer's output, by the Keras dtype policy.

    >>> item_bytes("float32"), item_bytes("mixed_bfloat16")
    (4, 2)
    """
    return {"float32": 4, "float64": 8}.get(precision, 2)


def _rate(card: Card, kind: str, backend: str, precision: str) -> int:
    """The operations a second of a kind of work. Without tensor cores for a precision it is computed in float32."""
    if kind not in ON_MATRIX_UNITS:
        return card.fp32_flops
    if precision == "float32":
        # All three frameworks let convolutions round to tf32 unless told otherwise; PyTorch no matrix products.
        in_tf32 = not (backend == "torch" and kind == "matrix")
        return card.tf32_flops or card.fp32_flops if in_tf32 else card.fp32_flops
    return (card.bf16_flops if "bfloat16" in precision else card.fp16_flops) or card.fp32_flops


_MASTER_BYTES = 4
"""The size of one weight, gradient or optimizer slot: float32 in any precision."""


class StepTime:
    """The predicted step time of one model on one card.

    The work of a step is counted layer by layer, and each kind of work takes its factor times the card's ideal time.
    The factors were measured on one card, so the order of recipes is more reliable than the seconds.
    """

    def __init__(self, work: Work, chain: Chain, *, backend: str, card: Card) -> None:
        self._work, self._chain, self._backend, self._card = work, chain, backend, card
        self._by_precision: dict[str, Array] = {}
        self._recomputed: dict[Segment, Array] = {}

    @classmethod
    def of_model(cls, model: Any, *, backend: str, card: Card) -> "StepTime | None":
        """The step time of a model; None where its layers form no graph, because its `call` is custom Python code."""
        if functional_of(model) is None:
            return None
        graph = layer_graph(model)
        return cls(count_work(model, graph), chain_of(graph), backend=backend, card=card)

    def seconds(
        self,
        *,
        batch_size: int,
        micro_batch: int,
        precision: str,
        jit: bool,
        kernels: str | None = None,
        segments: Sequence[Segment] = (),
    ) -> float:
        """Predict the seconds of one optimizer step."""
        ideal = self.ideal(batch_size=batch_size, micro_batch=micro_batch, precision=precision, segments=segments)
        mode = mode_of(self._backend, jit, kernels)
        terms = ideal * factors_of(mode, precision)
        if mode in OVERLAPPING:
            return float(max(terms[:-2].sum(), terms[-2:].sum()))
        return float(terms.sum())

    def speed(
        self, *, batch_size: int, micro_batch: int, precision: str, jit: bool, segments: Sequence[Segment] = ()
    ) -> Speed:
        """Predict the speed of one optimizer step, as a plan holds it."""
        seconds = self.seconds(
            batch_size=batch_size, micro_batch=micro_batch, precision=precision, jit=jit, segments=segments
        )
        return Speed(seconds_per_step=seconds, samples_per_second=batch_size / seconds, method="roofline")

    def ideal(self, *, batch_size: int, micro_batch: int, precision: str, segments: Sequence[Segment] = ()) -> Array:
        """Return the terms of a step before the factors, in the order of `FEATURES`."""
        import numpy as np

        times: Array = 1 + self._work.backward
        for segment in segments:
            times = times + self._count_recomputed(segment)
        num_micro_batches = len(micro_batch_sizes(batch_size, micro_batch))
        work = batch_size * (times @ self._ideal_seconds(precision))
        return np.concatenate(
            [work, [self._weight_seconds(num_micro_batches), num_micro_batches * (times @ self._num_kernels), 1]]
        )

    def _ideal_seconds(self, precision: str) -> Array:
        if precision not in self._by_precision:
            found = ideal_seconds(self._work, self._card, backend=self._backend, precision=precision)
            self._by_precision[precision] = found
        return self._by_precision[precision]

    @cached_property
    def _num_kernels(self) -> Array:
        """The least number of kernels that each call launches in the forward pass."""
        return (self._work.elements > 0).sum(axis=1)

    def _count_recomputed(self, segment: Segment) -> Array:
        """Return for each call of the model 1 where the segment recomputes it, else 0."""
        import numpy as np

        if segment not in self._recomputed:
            again: Array = np.zeros(self._chain.num_calls)
            inside = slice(segment.start, segment.stop)
            again[inside] = self._chain.recomputed_before(segment.stop)[segment.start :]
            self._recomputed[segment] = again * (self._work.backward > 0)
        return self._recomputed[segment]

    def _weight_seconds(self, num_micro_batches: int) -> float:
        """Return the ideal seconds of moving weights, gradients and optimizer slots in one step.

        Each micro-batch reads the weights twice and writes gradients; each further one adds its gradients to the sum.
        The update reads everything and writes everything but the gradients.
        """
        weights, slots = self._work.weights, self._work.slots
        passes = 3 * num_micro_batches + 2 * (num_micro_batches - 1) + 3
        return (passes * weights + 2 * slots) * _MASTER_BYTES / self._card.bandwidth_bytes_per_second
