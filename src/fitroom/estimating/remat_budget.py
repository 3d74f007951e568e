"""Segments for a budget: chosen by the search, checked by a real estimate, chosen again where that says otherwise.

The search counts bytes by rules that hold for any framework; what a framework makes of a step is known once it is
traced. The two differ by a factor that mostly depends little on the segments. So a first estimate gives the factor, and
the next choice is made with it; where that is too much again, the next lies halfway to the smallest.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fitroom.errors import InputError
from fitroom.keras_model.recompute import resident_bytes
from fitroom.memory.step import StepRequest, TracedStep
from fitroom.recipe import Recipe, Remat
from fitroom.remat.chooser import SegmentChooser
from fitroom.remat.segmentation import Segmentation
from fitroom.units import format_bytes

MOST_ESTIMATES = 6
GOOD_SHARE = 0.95
"""Of the budget: with less than that in use, a better choice is looked for."""

Trace = Callable[[Any, StepRequest], TracedStep]


def trace_within_budget(trace: Trace, model: Any, request: StepRequest) -> tuple[TracedStep, Recipe]:
    """The step that recomputes least within `request.recipe.remat.budget`, and the recipe that names its segments."""
    assert isinstance(request.recipe.remat, Remat)
    budget_bytes = request.recipe.remat.budget_bytes or 0
    choosing = _Choosing(trace, model, request)
    best: tuple[TracedStep, Recipe] | None = None
    # By the search's own count: what fits or is the smallest, what does not fit, and what to try next.
    fits_bytes, exceeds_bytes, next_bytes = choosing.smallest_bytes, None, budget_bytes
    for number in range(MOST_ESTIMATES):
        cover = choosing.cover(next_bytes)
        traced, recipe = choosing.traced(cover)
        if traced.required_bytes <= budget_bytes:
            best, fits_bytes = (traced, recipe), next_bytes
            if not cover.segments or traced.required_bytes >= GOOD_SHARE * budget_bytes:
                break
        elif next_bytes <= choosing.smallest_bytes:
            raise _impossible(budget_bytes, traced.required_bytes, choosing.num_samples)
        else:
            exceeds_bytes = next_bytes
        next_bytes = budget_bytes * choosing.counted_bytes(cover) // traced.required_bytes
        is_far_off = best is None and number > 0
        if exceeds_bytes is not None and (is_far_off or not fits_bytes < next_bytes < exceeds_bytes):
            next_bytes = (fits_bytes + exceeds_bytes) // 2
        if next_bytes <= fits_bytes:
            break
    return best or choosing.smallest(budget_bytes)


class _Choosing:
    """One model's choices, and estimates of them."""

    def __init__(self, trace: Trace, model: Any, request: StepRequest) -> None:
        self._trace, self._model, self._request = trace, model, request
        self._chooser = SegmentChooser.of_model(model)
        self.num_samples = request.recipe.samples_at_once(request.batch_size)
        self._resident_bytes = resident_bytes(model, self.num_samples)

    @property
    def smallest_bytes(self) -> int:
        """The least that the search can promise."""
        return self._chooser.search.smallest_peak_bytes * self.num_samples + self._resident_bytes

    def counted_bytes(self, cover: Segmentation) -> int:
        """What the search takes a cover for."""
        return cover.peak_bytes * self.num_samples + self._resident_bytes

    def cover(self, budget_bytes: int) -> Segmentation:
        """The cheapest within so many bytes, or else the smallest."""
        budget = Remat(budget=max(budget_bytes, self.smallest_bytes))
        return self._chooser.choose(budget, self.num_samples, self._resident_bytes)

    def traced(self, cover: Segmentation) -> tuple[TracedStep, Recipe]:
        """Its estimate, and the recipe that names its segments."""
        recipe = replace(self._request.recipe, remat=self._chooser.to_remat(cover))
        return self._trace(self._model, replace(self._request, recipe=recipe)), recipe

    def smallest(self, budget_bytes: int) -> tuple[TracedStep, Recipe]:
        """The last resort; raises InputError where not even that is within the budget."""
        traced, recipe = self.traced(self.cover(self.smallest_bytes))
        if traced.required_bytes > budget_bytes:
            raise _impossible(budget_bytes, traced.required_bytes, self.num_samples)
        return traced, recipe


def _impossible(budget_bytes: int, smallest_bytes: int, num_samples: int) -> InputError:
    return InputError(
        f"No choice of segments brings a step with micro-batch {num_samples} under {format_bytes(budget_bytes)}. "
        f"The smallest possible is {format_bytes(smallest_bytes)}.",
        hint="a larger budget, or a smaller micro_batch",
    )
