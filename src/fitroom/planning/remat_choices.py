"""The ways to recompute one model, each searched for once."""

from functools import cached_property
from typing import Any

from fitroom.keras_model.precision import in_precision
from fitroom.recipe import Remat
from fitroom.remat.chooser import SegmentChooser
from fitroom.remat.graph import functional_of
from fitroom.remat.segmentation import Segmentation, make_segmentation

_STEP = 1.01
"""Budgets that differ by a smaller factor share one search, because their results hardly differ."""


class RematChoices:
    """The choices of remat segments of one model in one precision, each with its peak and its operations."""

    def __init__(self, chooser: SegmentChooser) -> None:
        self._chooser = chooser
        self._within: dict[int, Segmentation | None] = {}

    @classmethod
    def of_model(cls, model: Any, precision: str) -> "RematChoices | None":
        """The choices for a model; None where its layers form no graph."""
        if functional_of(model) is None:
            return None
        with in_precision(model, precision):
            chooser = SegmentChooser.of_model(model)
            _ = chooser.chain  # its sizes are those of this precision
        return cls(chooser)

    @cached_property
    def none(self) -> Segmentation:
        """The choice that recomputes nothing."""
        return make_segmentation(self._chooser.chain, ())

    @cached_property
    def blocks(self) -> Segmentation:
        """The segments that `remat="blocks"` stands for."""
        return self._chooser.choose("blocks")

    @cached_property
    def tightest(self) -> Segmentation:
        """The segments with the smallest peak of all."""
        search = self._chooser.search
        return make_segmentation(self._chooser.chain, search.cheapest(search.smallest_peak_bytes) or ())

    def within(self, sample_bytes: int) -> Segmentation | None:
        """The segments that recompute least within so many bytes a sample; None where none are small enough."""
        if sample_bytes < self.tightest.peak_bytes:
            return None
        step = 0
        while self.tightest.peak_bytes * _STEP ** (step + 1) <= sample_bytes:
            step += 1
        if step not in self._within:
            segments = self._chooser.search.cheapest(int(self.tightest.peak_bytes * _STEP**step))
            self._within[step] = None if segments is None else make_segmentation(self._chooser.chain, segments)
        return self._within[step]

    def named(self, segmentation: Segmentation) -> Remat | str:
        """The `remat` of a recipe that recomputes these segments."""
        return self._chooser.to_remat(segmentation) if segmentation.segments else "none"
