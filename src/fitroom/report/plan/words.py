"""The sentences about a plan, the same in a terminal, a notebook, a figure and on a page."""

from collections.abc import Iterable, Sequence
from itertools import islice

from fitroom.planning.candidates import FEW_SAMPLES
from fitroom.planning.option import Change, Option, Speed
from fitroom.planning.result import Plan
from fitroom.recipe import Recipe
from fitroom.report.shared.words import format_backend
from fitroom.units import format_bytes

_KNOBS = {
    "micro_batch": "micro-batch",
    "kernels": "kernels",
    "remat": "recomputed",
    "input_dtype": "input",
    "image_size": "image size",
    "frozen_layers": "frozen layers",
}
_SPEED_METHODS = {"roofline": "predicted, not measured", "measured": "measured on the card"}

NO_GRAPH = "the layers form no graph, so their operations cannot be counted"
"""Why no speed is known."""


def format_headline(plan: Plan) -> str:
    """Say what the plan is for: "Xception, batch 256, JAX on RTX 3060, 11.20 GiB for training"."""
    place = f"{format_backend(plan.backend)} on {plan.gpu}"
    return f"{plan.model}, batch {plan.batch_size}, {place}, {format_bytes(plan.budget.bytes)} for training"


def format_verdict(plan: Plan) -> str:
    """Say with which recipe the model fits."""
    how = format_recipe(plan.recipe, plan.batch_size, precision=plan.estimate.precision)
    return f"fits with {how}" if plan.changes else f"fits as it is: {how}"


def format_recipe(recipe: Recipe, batch_size: int, *, precision: str | None = None) -> str:
    """Write a recipe in a few words.

    Args:
        recipe: the recipe.
        batch_size: the batch that it is for.
        precision: the model's own, said where the recipe sets none.

    >>> format_recipe(Recipe(micro_batch=32, remat="blocks", precision="mixed_bfloat16"), 256)
    'micro-batch 32, mixed_bfloat16, blocks recomputed'
    """
    parts = [
        format_micro_batch(recipe, batch_size),
        recipe.precision or precision,
        "fused kernels" if recipe.kernels == "fused" else None,
        "fused attention dropout" if recipe.attention_dropout == "fused" else None,
        f"{format_remat(recipe)} recomputed" if format_remat(recipe) else None,
        format_jit(recipe),
        recipe.optimizer,
        f"{recipe.image_size} x {recipe.image_size} pixels" if recipe.image_size else None,
        f"first {recipe.frozen_layers} layers frozen" if recipe.frozen_layers else None,
    ]
    return ", ".join(part for part in parts if part)


def format_micro_batch(recipe: Recipe, batch_size: int) -> str:
    """Say into which micro-batches a batch is cut, or that it is not."""
    size = recipe.samples_at_once(batch_size)
    return "whole batches" if size >= batch_size else f"micro-batch {size}"


def format_remat(recipe: Recipe) -> str:
    """Say what is recomputed; empty where nothing is."""
    return str(recipe.remat) if recipe.recomputes else ""


def format_jit(recipe: Recipe) -> str:
    """Say whether the step is compiled, where that was a choice."""
    return {None: "", True: "jit", False: "no jit"}[recipe.jit]


def format_speed(speed: Speed | None, batch_size: int) -> str:
    """Say how fast a recipe is, and how that is known."""
    return (
        f"{format_rate(speed)} samples a second, {format_step_time(speed, batch_size)}"
        if speed
        else f"unknown: {NO_GRAPH}"
    )


def format_step_time(speed: Speed, batch_size: int) -> str:
    """Say how long a step takes, and how that is known."""
    return f"{format_seconds(speed.seconds_per_step)} a step of {batch_size}, {_SPEED_METHODS[speed.method]}"


def format_knob(change: Change) -> str:
    """Return the name of a knob for people."""
    return _KNOBS.get(change.knob, change.knob)


def format_effects(changes: Iterable[Change]) -> str:
    """List what changes about the result, each effect once; "nothing" where there is none."""
    found = [effect for effect in dict.fromkeys(change.effect for change in changes) if effect != "nothing"]
    return ", ".join(found) or "nothing"


def format_fallbacks(plan: Plan) -> str:
    """List the recipes to continue with if memory runs out anyway."""
    return "; then ".join(
        f"{format_remat(recipe) or 'nothing'} recomputed with {format_micro_batch(recipe, plan.batch_size)}"
        for recipe in plan.fallbacks
    )


def format_reserve(plan: Plan) -> str:
    """Say where the budget is from and how much of it is kept in reserve."""
    source = "" if plan.budget.source == "given" else f"{plan.budget.source}. "
    return f"{source}A reserve of at least {format_bytes(plan.reserve_bytes)} stays free."


def is_chosen(plan: Plan, option: Option) -> bool:
    """Whether the option is the one that the plan is for."""
    return _list_settings(plan, option.recipe) == _list_settings(plan, plan.recipe)


def select_options(plan: Plan) -> Sequence[Option]:
    """Select from the frontier: the chosen recipe, its neighbours, the next fallback, and those that `why` names."""
    every = plan.frontier
    chosen = next((place for place, option in enumerate(every) if is_chosen(plan, option)), None)
    if chosen is None:  # a plan of an older version
        return every
    faster, slower = every[:chosen], every[chosen + 1 :]
    next_ones = [_list_settings(plan, recipe) for recipe in plan.fallbacks[:1]]
    wanted = [
        *faster[-1:],
        *_take_first(option for option in faster if option.fits and _has_enough(plan, option)),
        *_take_first(option for option in faster if option.fits and not _has_enough(plan, option)),
        every[chosen],
        *slower[:1],
        *_take_first(option for option in slower if option.fits and option.micro_batch >= plan.batch_size),
        *(option for option in every if _list_settings(plan, option.recipe) in next_ones),
    ]
    return [option for option in every if any(option is one for one in wanted)]


def _take_first(options: Iterable[Option]) -> list[Option]:
    return list(islice(options, 1))


def _has_enough(plan: Plan, option: Option) -> bool:
    return option.micro_batch >= min(FEW_SAMPLES, plan.batch_size)


def format_rate(speed: Speed | None) -> str:
    """Write samples a second."""
    if speed is None:
        return "unknown"
    number = speed.samples_per_second
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def format_seconds(duration: float) -> str:
    """Write the time of a step.

    >>> format_seconds(0.20712), format_seconds(4.126), format_seconds(250)
    ('0.207 s', '4.13 s', '4 min 10 s')
    """
    if duration < 100:
        return f"{duration:.3g} s"
    return f"{round(duration) // 60} min {round(duration) % 60} s"


def _list_settings(plan: Plan, recipe: Recipe) -> tuple[object, ...]:
    """List all that tells recipes apart, whether set or left as the model has it: a plan that was saved sets more."""
    own = next((change.before for change in plan.changes if change.knob == "precision"), plan.estimate.precision)
    others = (recipe.jit, recipe.optimizer, recipe.image_size, recipe.frozen_layers, recipe.input_dtype)
    return (recipe.samples_at_once(plan.batch_size), recipe.remat or "none", recipe.precision or own, *others)
