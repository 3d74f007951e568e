"""The first steady steps of a planned training, measured: they correct later estimates and plans of the model."""

import itertools
import math
import re
from typing import Any

from fitroom.backends.contract import Backend, Stepper
from fitroom.backends.meter import MemoryMeter
from fitroom.backends.places import place_of_training
from fitroom.distribution.current import current_distribution
from fitroom.environment import corrections_folder
from fitroom.events import EventKind, Events
from fitroom.memory.corrections import MeasuredStep, correction_key, store_step
from fitroom.planning.identity import layers_of
from fitroom.planning.result import Plan
from fitroom.recipe import Recipe
from fitroom.units import format_bytes

_FIRST_STEPS, _STEADY_STEPS = 3, 4
"""The first ones make slots, try kernels and fill caches. Of the others the highest peak counts."""

_MOST_BESIDE_SHARE = 0.25
"""A step is not measured where this process holds more than such a share of it besides: what a step makes room of
cannot be told from what it takes."""


class FirstSteps:
    """Measures a few steps of a training that are carried out as its plan says, then nothing any more."""

    def __init__(self, plan: Plan, model: Any, backend: Backend, events: Events) -> None:
        """Call it when the model has all its variables, and no batch is on the device."""
        self._plan, self._backend, self._events = plan, backend, events
        self._steps = 0
        self._most_bytes = 0
        self._meter: MemoryMeter | None = None
        self._place = _place_of(plan, backend)
        if self._place is None:
            return
        self._meter = MemoryMeter(backend)
        in_use_bytes = self._meter.read()["in_use_bytes"] or 0
        self._beside_bytes = max(0, in_use_bytes - _bytes_of_variables(model))
        if self._beside_bytes > _MOST_BESIDE_SHARE * plan.estimate.peak_bytes:
            self._meter = None

    def before(self, batch_size: int, recipe: Recipe) -> bool:
        """Start the peak anew before a step that may count. Returns whether the step may."""
        if self._meter is None or batch_size != self._plan.batch_size or not self._is_as_planned(batch_size, recipe):
            return False
        self._steps += 1
        if self._steps <= _FIRST_STEPS:
            return False
        self._meter.read()
        return True

    def after(self, stepper: Stepper, recipe: Recipe, batch_size: int) -> None:
        """Read the peak of a step that counts, and keep it when it was the last."""
        if self._meter is None:
            return
        if not self._is_as_planned(batch_size, recipe):  # it ran out of memory, and was repeated with less
            self._meter = None
            return
        if self._backend.can_reset_peak:
            peak_bytes = (self._meter.read()["peak_bytes"] or 0) - self._beside_bytes
        else:
            peak_bytes = getattr(stepper, "compiled_peak_bytes", None) or 0
        self._most_bytes = max(self._most_bytes, peak_bytes)
        if self._steps == _FIRST_STEPS + _STEADY_STEPS:
            self._meter = None
            self._keep()

    def _is_as_planned(self, batch_size: int, recipe: Recipe) -> bool:
        planned = self._plan.recipe
        return (
            recipe.samples_at_once(batch_size) == planned.samples_at_once(batch_size)
            and recipe.recomputes == planned.recomputes
            and (recipe.kernels or "keras") == (planned.kernels or "keras")
            and recipe.attention_dropout == planned.attention_dropout
        )

    def _keep(self) -> None:
        estimate = self._plan.estimate
        assert self._place is not None, "else nothing is measured"
        predicted_bytes = estimate.uncorrected_bytes or estimate.peak_bytes
        step = MeasuredStep(predicted_bytes=predicted_bytes, measured_bytes=max(self._most_bytes, 1))
        if store_step(correction_key(estimate, self._place), step, model=self._plan.model):
            self._events.tell(
                EventKind.STEP_MEASURED,
                f"the first steady steps took {format_bytes(step.measured_bytes)}, {100 * step.share:+.1f} % of what "
                "was predicted; later estimates and plans of this model here are corrected by that",
                predicted_bytes=predicted_bytes,
                measured_bytes=step.measured_bytes,
            )


def _place_of(plan: Plan, backend: Backend) -> str | None:
    """Where the steps of a training with a plan are measured; None where they cannot correct its estimate."""
    distribution, estimate = current_distribution(), plan.estimate
    if (
        corrections_folder() is None
        or (distribution is not None and distribution.num_devices > 1)
        or estimate.method == "measured"
        or estimate.devices > 1
        # A phase that trains only some of the planned layers takes less than the plan says.
        or estimate.layers_digest != layers_of(plan.model_digest)
    ):
        return None
    return place_of_training(backend, plan.gpu)


def _bytes_of_variables(model: Any) -> int:
    optimizer = [] if model.optimizer is None else model.optimizer.variables
    variables = itertools.chain(model.variables, optimizer, model.metrics_variables)
    unique = {id(variable): variable for variable in variables}.values()
    return sum(math.prod(each.shape) * _item_bytes(each.dtype) for each in unique)


def _item_bytes(dtype: str) -> int:
    """The bytes of one value.

    >>> _item_bytes("bfloat16"), _item_bytes("float8_e4m3fn"), _item_bytes("bool")
    (2, 1, 1)
    """
    bits = re.search(r"\d+", dtype)
    return int(bits.group()) // 8 if bits else 1
