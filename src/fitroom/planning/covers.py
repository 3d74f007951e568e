"""The ways to recompute one model, each looked for once."""

from functools import cached_property
from typing import Any

from fitroom.keras_model.precision import in_precision
from fitroom.recipe import Remat
from fitroom.remat.choice import Choice
from fitroom.remat.cover import Cover, cover_of
from fitroom.remat.graph import functional_of

_STEP = 1.01
"""Budgets that differ by less are one: a search for each would be time spent on nothing."""


class Covers:
    """Of a model in one precision."""

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._within: dict[int, Cover | None] = {}

    @classmethod
    def of_model(cls, model: Any, precision: str) -> "Covers | None":
        """None where the layers form no graph."""
        if functional_of(model) is None:
            return None
        with in_precision(model, precision):
            choice = Choice.of_model(model)
            _ = choice.chain  # its sizes are those of this precision
        return cls(choice)

    @cached_property
    def none(self) -> Cover:
        """Nothing recomputed."""
        return cover_of(self._choice.chain, ())

    @cached_property
    def blocks(self) -> Cover:
        """As `remat="blocks"` has it."""
        return self._choice.cover("blocks")

    @cached_property
    def tightest(self) -> Cover:
        """As little memory as recomputing can do with."""
        search = self._choice.search
        return cover_of(self._choice.chain, search.cheapest(search.smallest_peak_bytes) or ())

    def within(self, sample_bytes: int) -> Cover | None:
        """The least recomputed with so many bytes a sample, or None where nothing does."""
        if sample_bytes < self.tightest.peak_bytes:
            return None
        step = 0
        while self.tightest.peak_bytes * _STEP ** (step + 1) <= sample_bytes:
            step += 1
        if step not in self._within:
            segments = self._choice.search.cheapest(int(self.tightest.peak_bytes * _STEP**step))
            self._within[step] = None if segments is None else cover_of(self._choice.chain, segments)
        return self._within[step]

    def named(self, cover: Cover) -> Remat | str:
        """As a recipe says it."""
        return self._choice.named(cover) if cover.segments else "none"
