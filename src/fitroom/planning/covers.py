"""The ways to recompute one model, each looked for once."""

from functools import cached_property
from typing import Any

from fitroom.keras_model.precision import in_precision
from fitroom.recipe import Remat
from fitroom.remat.chooser import SegmentChooser
from fitroom.remat.graph import functional_of
from fitroom.remat.segmentation import Segmentation, make_segmentation

_STEP = 1.01
"""Budgets that differ by less are one: a search for each would be time spent on nothing."""


class Covers:
    """Of a model in one precision."""

    def __init__(self, choice: SegmentChooser) -> None:
        self._chooser = choice
        self._within: dict[int, Segmentation | None] = {}

    @classmethod
    def of_model(cls, model: Any, precision: str) -> "Covers | None":
        """None where the layers form no graph."""
        if functional_of(model) is None:
            return None
        with in_precision(model, precision):
            choice = SegmentChooser.of_model(model)
            _ = choice.chain  # its sizes are those of this precision
        return cls(choice)

    @cached_property
    def none(self) -> Segmentation:
        """Nothing recomputed."""
        return make_segmentation(self._chooser.chain, ())

    @cached_property
    def blocks(self) -> Segmentation:
        """As `remat="blocks"` has it."""
        return self._chooser.choose("blocks")

    @cached_property
    def tightest(self) -> Segmentation:
        """As little memory as recomputing can do with."""
        search = self._chooser.search
        return make_segmentation(self._chooser.chain, search.cheapest(search.smallest_peak_bytes) or ())

    def within(self, sample_bytes: int) -> Segmentation | None:
        """The least recomputed with so many bytes a sample, or None where nothing does."""
        if sample_bytes < self.tightest.peak_bytes:
            return None
        step = 0
        while self.tightest.peak_bytes * _STEP ** (step + 1) <= sample_bytes:
            step += 1
        if step not in self._within:
            segments = self._chooser.search.cheapest(int(self.tightest.peak_bytes * _STEP**step))
            self._within[step] = None if segments is None else make_segmentation(self._chooser.chain, segments)
        return self._within[step]

    def named(self, cover: Segmentation) -> Remat | str:
        """As a recipe says it."""
        return self._chooser.to_remat(cover) if cover.segments else "none"
