"""The alternatives of a plan as points of a figure: memory across, speed up."""

from collections.abc import Callable
from dataclasses import dataclass

from fitroom.planning.option import Option
from fitroom.planning.result import Plan
from fitroom.report.plan import words
from fitroom.units import format_bytes

_FAR = 3
"""A budget so many times the largest recipe, or a recipe so many times the budget, is not drawn: all else would
be in a corner."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One recipe."""

    option: Option
    name: str
    """The recipe in words."""

    across_bytes: int
    up: float
    """Samples a second, or where no speed is known the micro-batch."""

    group: str
    """What sets it apart from others besides its micro-batch: "mixed_bfloat16, recomputed"."""

    chosen: bool

    @property
    def details(self) -> list[str]:
        """What its place in the figure does not say."""
        sure = "confirmed" if self.option.confirmed else "interpolated"
        return [
            f"needs {format_bytes(self.option.required_bytes)}, {sure}",
            f"changes {words.format_effects(self.option.changes)}",
        ]


@dataclass(frozen=True, kw_only=True)
class Points:
    """All that can be drawn, the smallest first."""

    points: tuple[Point, ...]
    has_speed: bool
    budget_bytes: int

    @property
    def chosen(self) -> list[Point]:
        """The one that the plan is for."""
        return [point for point in self.points if point.chosen]

    @property
    def groups(self) -> dict[str, list[Point]]:
        """The others that fit, alike ones together."""
        found: dict[str, list[Point]] = {}
        for point in self.points:
            if point.option.fits and not point.chosen:
                found.setdefault(point.group, []).append(point)
        return found

    @property
    def too_large(self) -> list[Point]:
        """Those that do not fit."""
        return [point for point in self.points if not point.option.fits and not point.chosen]

    @property
    def budget_is_far(self) -> bool:
        """Whether a line at the budget would leave the figure mostly empty."""
        return self.budget_bytes > _FAR * max(point.across_bytes for point in self.points)

    @property
    def up_words(self) -> str:
        """What is counted upwards."""
        return "samples a second" if self.has_speed else "micro-batch"


def find_points(plan: Plan) -> Points:
    """Turn the frontier into points, without what is far too large; unknown speeds only where all are unknown."""
    has_speed = any(option.speed for option in plan.frontier)
    known = [option for option in plan.frontier if option.speed or not has_speed]
    drawn = [option for option in known if option.required_bytes <= _FAR * plan.budget.bytes] or known
    groups = _name_groups(plan, drawn)
    points = [
        Point(
            option=option,
            name=words.format_recipe(option.recipe, plan.batch_size, precision=plan.estimate.precision),
            across_bytes=option.required_bytes,
            up=option.speed.samples_per_second if option.speed else option.micro_batch,
            group=group,
            chosen=words.is_chosen(plan, option),
        )
        for option, group in zip(drawn, groups, strict=True)
    ]
    in_order = tuple(sorted(points, key=lambda point: point.across_bytes))
    return Points(points=in_order, has_speed=has_speed, budget_bytes=plan.budget.bytes)


def _name_groups(plan: Plan, options: list[Option]) -> list[str]:
    """Name each option by the knobs that are not the same for all."""
    knobs: tuple[Callable[[Option], str], ...] = (
        lambda option: option.recipe.precision or plan.estimate.precision,
        lambda option: "recomputed" if words.format_remat(option.recipe) else "nothing recomputed",
        lambda option: words.format_jit(option.recipe),
        lambda option: option.recipe.optimizer or "",
        lambda option: f"{option.recipe.image_size} pixels" if option.recipe.image_size else "",
        lambda option: f"{option.recipe.frozen_layers} layers frozen" if option.recipe.frozen_layers else "",
    )
    differing = [knob for knob in knobs if len({knob(option) for option in options}) > 1]
    return [", ".join(filter(None, (knob(option) for knob in differing))) or "fits" for option in options]
