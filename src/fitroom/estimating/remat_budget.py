"""Chooses remat segments for a budget: by the search first, then corrected by real estimates.

The search counts bytes by rules that hold for any framework; what a framework takes is known once the step is traced.
The two differ by a factor that mostly depends little on the segments. So a first estimate gives the factor, and the
next choice uses it; where that exceeds the budget too, the next try lies halfway to the smallest choice.
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
"""The share of the budget that a good choice uses; below it, a choice that recomputes less is tried."""

Trace = Callable[[Any, StepRequest], TracedStep]


def trace_within_budget(trace: Trace, model: Any, request: StepRequest) -> tuple[TracedStep, Recipe]:
    """Return the step that recomputes least within `request.recipe.remat.budget`, and the recipe with its segments."""
    assert isinstance(request.recipe.remat, Remat)
    budget_bytes = request.recipe.remat.budget_bytes or 0
    choices = _TracedChoices(trace, model, request)
    best: tuple[TracedStep, Recipe] | None = None
    # In bytes as the search counts them: the largest that fits, the smallest that does not, and what to try next.
    fits_bytes, exceeds_bytes, next_bytes = choices.smallest_bytes, None, budget_bytes
    for number in range(MOST_ESTIMATES):
        segmentation = choices.choose(next_bytes)
        traced, recipe = choices.trace(segmentation)
        if traced.required_bytes <= budget_bytes:
            best, fits_bytes = (traced, recipe), next_bytes
            if not segmentation.segments or traced.required_bytes >= GOOD_SHARE * budget_bytes:
                break
        elif next_bytes <= choices.smallest_bytes:
            raise _make_error(budget_bytes, traced.required_bytes, choices.num_samples)
        else:
            exceeds_bytes = next_bytes
        next_bytes = budget_bytes * choices.counted_bytes(segmentation) // traced.required_bytes
        is_far_off = best is None and number > 0
        if exceeds_bytes is not None and (is_far_off or not fits_bytes < next_bytes < exceeds_bytes):
            next_bytes = (fits_bytes + exceeds_bytes) // 2
        if next_bytes <= fits_bytes:
            break
    return best or choices.trace_smallest(budget_bytes)


class _TracedChoices:
    """The choices of remat segments for one model, and their estimates."""

    def __init__(self, trace: Trace, model: Any, request: StepRequest) -> None:
        self._trace, self._model, self._request = trace, model, request
        self._chooser = SegmentChooser.of_model(model)
        self.num_samples = request.recipe.samples_at_once(request.batch_size)
        self._resident_bytes = resident_bytes(model, self.num_samples)

    @property
    def smallest_bytes(self) -> int:
        """The smallest peak of any choice, as the search counts it."""
        return self._chooser.search.smallest_peak_bytes * self.num_samples + self._resident_bytes

    def counted_bytes(self, segmentation: Segmentation) -> int:
        """The peak of a choice, as the search counts it."""
        return segmentation.peak_bytes * self.num_samples + self._resident_bytes

    def choose(self, budget_bytes: int) -> Segmentation:
        """Return the choice that recomputes least within so many bytes, or else the smallest."""
        budget = Remat(budget=max(budget_bytes, self.smallest_bytes))
        return self._chooser.choose(budget, self.num_samples, self._resident_bytes)

    def trace(self, segmentation: Segmentation) -> tuple[TracedStep, Recipe]:
        """Trace the step with a choice; return it and the recipe that names the segments."""
        recipe = replace(self._request.recipe, remat=self._chooser.to_remat(segmentation))
        return self._trace(self._model, replace(self._request, recipe=recipe)), recipe

    def trace_smallest(self, budget_bytes: int) -> tuple[TracedStep, Recipe]:
        """Trace the smallest choice. Raises InputError where it exceeds the budget, too."""
        traced, recipe = self.trace(self.choose(self.smallest_bytes))
        if traced.required_bytes > budget_bytes:
            raise _make_error(budget_bytes, traced.required_bytes, self.num_samples)
        return traced, recipe


def _make_error(budget_bytes: int, smallest_bytes: int, num_samples: int) -> InputError:
    return InputError(
        f"No choice of segments brings a step with micro-batch {num_samples} under {format_bytes(budget_bytes)}. "
        f"The smallest possible is {format_bytes(smallest_bytes)}.",
        hint="a larger limit, or a smaller micro-batch",
    )
