"""What a recipe that was planned for one card takes on another: several cards that train together use one."""

from typing import Any

from fitroom.budget import Budget
from fitroom.cards.catalogue import Card
from fitroom.estimating.estimate import estimate
from fitroom.keras_model.freezing import freeze_temporarily
from fitroom.keras_model.input_batch import symbolic_calls
from fitroom.memory.step import NO_LIMIT_BYTES
from fitroom.planning.devices import Need
from fitroom.planning.option import Speed
from fitroom.planning.target import Target
from fitroom.recipe import Recipe


def try_recipe(
    model: Any,
    batch_size: int,
    recipe: Recipe,
    card: Card,
    budget: Budget,
    *,
    backend: str,
    sharded_over: int = 1,
    **compiled_with: Any,
) -> Need:
    """Estimate a recipe for a share of `batch_size` samples on a card. `compiled_with`: an optimizer, a loss.

    With `sharded_over` so many cards divide weights and optimizer state among them.
    """
    with symbolic_calls(), freeze_temporarily(model, recipe.frozen_layers):
        found = estimate(
            model,
            batch_size * sharded_over,
            recipe=recipe,
            gpu=card,
            limit=NO_LIMIT_BYTES,
            devices=sharded_over,
            shard_weights=sharded_over > 1,
            **compiled_with,
        )
        speed = _predict_speed(model, batch_size, recipe, card, backend=backend, precision=found.precision)
    return Need(
        micro_batch=recipe.micro_batch or batch_size,
        required_bytes=found.required_bytes,
        fits=found.required_bytes <= Target(budget=budget, card=card).usable_bytes,
        speed=speed,
    )


def _predict_speed(
    model: Any, batch_size: int, recipe: Recipe, card: Card, *, backend: str, precision: str
) -> Speed | None:
    from fitroom.keras_model.precision import in_precision
    from fitroom.planning.roofline.step_time import StepTime
    from fitroom.remat.chooser import SegmentChooser

    step_time = StepTime.of_model(model, backend=backend, card=card)
    if step_time is None:
        return None
    with in_precision(model, precision):
        segments = SegmentChooser.of_model(model).choose(recipe.remat or "none").segments
    seconds = step_time.seconds(
        batch_size=batch_size,
        micro_batch=recipe.micro_batch or batch_size,
        precision=precision,
        jit=recipe.jit is not False,
        kernels=recipe.kernels,
        segments=segments,
    )
    return Speed(seconds_per_step=seconds, samples_per_second=batch_size / seconds, method="roofline")
