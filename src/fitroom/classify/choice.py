"""How a training is carried out: precision, size of pictures, optimizer and recipe, and why."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from fitroom.classify.options import TrainOptions
from fitroom.classify.precision import Precision
from fitroom.planning.identity import model_digest, rename_segments
from fitroom.planning.result import Plan
from fitroom.recipe import Recipe, Remat
from fitroom.report.plan.words import format_recipe

_ASKED_OF_THE_PLAN = ("budget", "gpu", "micro_batch", "keep", "allow", "prefer")
"""Options that make another plan."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What was settled before training."""

    precision: Precision
    image_size: int
    optimizer: str
    frozen_layers: int | None
    """How many of the first layers are not trained, where the plan says so."""

    recipe: Recipe
    """How a step is carried out: the plan's, or what to begin with where there is no plan."""

    plan: Plan | None
    why: str
    """In whole sentences."""

    @classmethod
    def of_job(cls, job: dict[str, Any]) -> "Choice":
        """The choice that `to_job` wrote."""
        plan = Plan.from_dict(job["plan"]) if job.get("plan") else None
        begun_with = {name: job["recipe"].get(name) for name in ("micro_batch", "jit", "remat")}
        return cls(
            precision=Precision(**job["precision"]),
            image_size=job["image_size"],
            optimizer=job["optimizer"],
            frozen_layers=job.get("frozen_layers"),
            recipe=plan.recipe if plan else Recipe(**begun_with),
            plan=plan,
            why=job["recipe_why"],
        )

    def to_job(self, batch_size: int) -> dict[str, Any]:
        """As `job.json` has it."""
        micro_batch = self.recipe.micro_batch
        recipe = {
            "batch_size": batch_size,
            "micro_batch": None if micro_batch is None or micro_batch >= batch_size else micro_batch,
            "precision": self.precision.policy,
            "jit": self.recipe.jit,
            "remat": self.recipe.to_dict().get("remat"),
        }
        return {
            "precision": self.precision.to_dict(),
            "image_size": self.image_size,
            "optimizer": self.optimizer,
            "frozen_layers": self.frozen_layers,
            "recipe": recipe,
            "recipe_why": self.why,
            "plan": self.plan.to_dict() if self.plan else None,
        }

    def plan_for(self, model: Any) -> Plan | None:
        """The plan as one of this very model, which was built after the one that was planned with: Keras has counted
        its layers on. And it is the same one whether all of it is trained or its head alone."""
        if self.plan is None:
            return None
        before, now = self.plan.model_digest, model_digest(model)

        def here(recipe: Recipe) -> Recipe:
            remat = recipe.remat
            return replace(recipe, remat=rename_segments(remat, before, now)) if isinstance(remat, Remat) else recipe

        fallbacks = tuple(map(here, self.plan.fallbacks))
        return replace(self.plan, recipe=here(self.plan.recipe), fallbacks=fallbacks, model_digest=now)

    def lines(self, options: TrainOptions, own_size: int) -> Iterator[str]:
        """For people: what was chosen, why, and what that changes about the result."""
        yield f"precision: {self.precision.policy} ({self.precision.why})"
        if self.plan is None:
            yield self.why
        else:
            how = format_recipe(self.recipe, self.plan.batch_size)
            yield f"plan: {how}"
            yield f"why: {self.why}"
            seen_by = {"batch statistics": "BatchNormalization sees "}
            changed = [
                f"{one.effect} ({seen_by.get(one.effect, '')}{one.after} in place of {one.before})"
                for one in self.plan.changes
            ]
            said = [words for words in changed if not words.startswith("nothing")]
            yield f"what it changes about the result: {', '.join(said) or 'nothing'}"
        if self.image_size != own_size:
            sizes = f"{self.image_size} x {self.image_size} in place of {own_size} x {own_size}"
            yield f"pictures are made smaller, as was allowed: {sizes}, since nothing else fits"
        elif options.may_resize:
            yield f"pictures stay at {own_size} x {own_size}"
        if self.optimizer != options.optimizer:
            yield f"the optimizer is {self.optimizer} in place of {options.optimizer}, as was allowed: it keeps less"
        if self.frozen_layers:
            yield f"the first {self.frozen_layers} layers with weights are not trained, as was allowed"


def is_asked_again(options: TrainOptions, job: dict[str, Any]) -> bool:
    """Whether a run that goes on was given the same memory and knobs as when it was begun."""
    kept, now = TrainOptions(**job["options"]), options
    return all(getattr(kept, name) == getattr(now, name) for name in _ASKED_OF_THE_PLAN)
