"""A small plan made by hand, with sizes that are easy to follow; it needs no framework."""

from dataclasses import replace
from typing import Any

from fitroom.budget import Budget
from fitroom.planning.option import Change, Option, Speed
from fitroom.planning.result import Plan
from fitroom.recipe import Recipe, Remat
from sample_estimates import GIB, small_estimate

SEGMENTS = Remat(segments=[("stem", "head")])

RECOMPUTED = Change(knob="remat", before="none", after="1 segment", effect="nothing")
ROUNDED = Change(knob="precision", before="float32", after="mixed_bfloat16", effect="rounding")


def cut_to(size: int) -> Change:
    """The whole batch of 256 in parts of this size."""
    return Change(knob="micro_batch", before="256", after=str(size), effect="batch statistics")


def speed_of(samples_per_second: float, batch_size: int = 256) -> Speed:
    """By the roofline."""
    return Speed(
        seconds_per_step=batch_size / samples_per_second, samples_per_second=samples_per_second, method="roofline"
    )


def option_of(recipe: Recipe, required_bytes: int, samples_per_second: float | None, *changes: Change) -> Option:
    """For a batch of 256 in 8 GiB, 3 % of which stay free."""
    return Option(
        recipe=recipe,
        micro_batch=recipe.micro_batch or 256,
        peak_bytes=required_bytes * 4 // 5,
        required_bytes=required_bytes,
        fits=required_bytes <= 8 * GIB * 97 // 100,
        confirmed=recipe.remat == SEGMENTS,
        speed=None if samples_per_second is None else speed_of(samples_per_second),
        changes=changes,
    )


def sample_frontier() -> tuple[Option, ...]:
    """Four, from fast and too large to small and slow."""
    return (
        option_of(Recipe(), 20 * GIB, 500.0),
        option_of(Recipe(remat=SEGMENTS), 25 * GIB // 4, 400.0, RECOMPUTED),
        option_of(Recipe(remat="blocks"), 4 * GIB, 350.0, replace(RECOMPUTED, after="blocks")),
        option_of(
            Recipe(remat="blocks", micro_batch=64), 2 * GIB, 300.0, replace(RECOMPUTED, after="blocks"), cut_to(64)
        ),
    )


def sample_plan(**changes: Any) -> Plan:
    """TinyNet with a batch of 256 in 8 GiB of an L4: whole, one segment recomputed; `changes` are fields of `Plan`."""
    recipe = Recipe(remat=SEGMENTS)
    plan = Plan(
        recipe=recipe,
        batch_size=256,
        micro_batch=256,
        estimate=replace(small_estimate(), batch_size=256, recipe=recipe),
        speed=speed_of(400.0),
        budget=Budget(bytes=8 * GIB, source="given"),
        reserve_bytes=8 * GIB * 3 // 100,
        changes=(RECOMPUTED,),
        why="The fastest recipe that fits into 8 GiB keeps the batch whole and computes one segment again; "
        "without that it would take 20 GiB.",
        frontier=sample_frontier(),
        fallbacks=(
            Recipe(remat="blocks"),
            Recipe(remat="blocks", micro_batch=128),
            Recipe(remat="blocks", micro_batch=64),
        ),
        model="TinyNet",
        backend="jax",
        gpu="NVIDIA L4",
        model_digest="0" * 64,
        notes=("The card was not here: its speed is from its datasheet.",),
    )
    return replace(plan, **changes)
