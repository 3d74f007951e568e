"""A plan whose speeds were measured: a few steps of the best recipes on the card in this machine."""

import time
from dataclasses import replace
from typing import Any

from fitroom.planning.option import Option
from fitroom.planning.planner import Say
from fitroom.planning.result import Plan
from fitroom.planning.speed import Speed

MOST_PROBED = 3
_STEPS = 5


def probed(model: Any, plan: Plan, say: Say) -> Plan:
    """The plan with the recipe that was fastest; only what was estimated at its real size is tried.

    Steps are of a twin of the model with values of its own, so that the model stays as it is.
    """
    options = [option for option in plan.frontier if option.fits and option.confirmed][:MOST_PROBED]
    measured: dict[int, Option] = {}
    for option in options:
        say(f"timing {option.micro_batch} at once on the card")
        seconds = _seconds_of_step(model, plan, option)
        speed = Speed(seconds_per_step=seconds, samples_per_second=plan.batch_size / seconds, method="measured")
        measured[id(option)] = replace(option, speed=speed)
    frontier = tuple(measured.get(id(option), option) for option in plan.frontier)
    chosen = next((one for one in measured.values() if one.recipe == plan.recipe), None)
    return replace(plan, frontier=frontier, speed=chosen.speed if chosen else plan.speed)


def _seconds_of_step(model: Any, plan: Plan, option: Option) -> float:
    from fitroom.train.step import Step

    twin = _twin(model)
    x, y = _batch(twin, plan.batch_size)
    step = Step(twin, recipe=replace(option.recipe, input_dtype=None))
    step(x, y)  # compiles, and makes the optimizer's variables
    begun = time.perf_counter()
    for _ in range(_STEPS):
        step(x, y)  # its logs are numbers: the step is done
    return (time.perf_counter() - begun) / _STEPS


def _twin(model: Any) -> Any:
    import keras

    twin = keras.models.clone_model(model)
    twin.compile(
        optimizer=type(model.optimizer).from_config(model.optimizer.get_config()),
        loss=model.loss,
        jit_compile=model.jit_compile,
    )
    return twin


def _batch(model: Any, batch_size: int) -> tuple[Any, Any]:
    """Zeros in the shapes that the model takes; targets as its loss most likely wants them."""
    import keras
    import numpy as np

    from fitroom.backends.keras_batch import input_specs, target_specs
    from fitroom.recipe import Recipe

    specs = input_specs(model, batch_size, Recipe())

    def zeros(spec: Any) -> Any:
        return np.zeros(spec.shape, spec.dtype)

    return keras.tree.map_structure(zeros, specs), keras.tree.map_structure(zeros, target_specs(model, specs)[0])
