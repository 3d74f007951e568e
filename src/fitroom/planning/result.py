"""A plan: the recipe chosen for a budget, what it takes, how fast it is, what it changes, and the alternatives."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fitroom.budget import Budget
from fitroom.errors import InputError
from fitroom.files.durable import read_json, write_json
from fitroom.files.field_types import check_types
from fitroom.memory.estimate import Estimate
from fitroom.planning.option import Change, Option, Speed
from fitroom.recipe import PRECISIONS, Recipe

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What `fitroom.plan` found. It prints itself; `fitroom.fit(model, ..., plan=plan)` carries it out."""

    recipe: Recipe
    """The one to train with."""

    batch_size: int
    """Samples per optimizer step; never changed."""

    micro_batch: int
    """The most samples on the device at once."""

    estimate: Estimate = field(repr=False)
    """What the recipe takes, estimated at its real size."""

    speed: Speed | None
    """None where the model's layers form no graph whose work could be counted."""

    budget: Budget
    reserve_bytes: int
    """What is left free of the budget on purpose."""

    changes: tuple[Change, ...]
    """The knobs that are turned away from what the user has, and what each changes."""

    why: str
    """In whole sentences: why this one, and why not the others."""

    frontier: tuple[Option, ...] = field(repr=False)
    """All recipes worth having, fastest first: each of the others takes less memory or changes less."""

    fallbacks: tuple[Recipe, ...] = field(repr=False)
    """What to go on with if memory runs out all the same, each smaller than the one before."""

    model: str
    backend: str
    gpu: str
    model_digest: str
    """Of its layers and variables: a plan is for one model."""

    notes: tuple[str, ...] = ()

    @property
    def free_bytes(self) -> int:
        """What stays free of the budget."""
        return self.budget.bytes - self.estimate.required_bytes

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON; `from_dict` reads it again."""
        recipe: dict[str, Any] = {"batch_size": self.batch_size, "micro_batch": self.micro_batch}
        if self.estimate.precision in PRECISIONS:  # else the model's own, which no recipe names
            recipe["precision"] = self.estimate.precision
        return {
            "schema_version": SCHEMA_VERSION,
            "model": self.model,
            "model_digest": self.model_digest,
            "backend": self.backend,
            "gpu": self.gpu,
            "budget": asdict(self.budget),
            "reserve_bytes": self.reserve_bytes,
            "free_bytes": self.free_bytes,
            "recipe": recipe | {"remat": "none"} | self.recipe.to_dict(),
            "estimate": self.estimate.to_dict() | {"timeline": self.estimate.timeline.condense().to_dict()},
            "speed": self.speed.to_dict() if self.speed else None,
            "changes": [change.to_dict() for change in self.changes],
            "frontier": [option.to_dict() for option in self.frontier],
            "fallbacks": [recipe.to_dict() for recipe in self.fallbacks],
            "why": self.why,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Plan":
        """The plan that `to_dict` wrote."""
        if data.get("schema_version") != SCHEMA_VERSION:
            raise InputError(
                f"A plan of schema version {SCHEMA_VERSION} was expected. Received: {data.get('schema_version')!r}.",
                hint="make the plan anew with `fitroom plan`",
            )
        recipe = dict(data["recipe"])
        batch_size = recipe.pop("batch_size")
        found = cls(
            recipe=Recipe(**recipe),
            batch_size=batch_size,
            micro_batch=recipe["micro_batch"],
            estimate=Estimate.from_dict(data["estimate"]),
            speed=Speed(**data["speed"]) if data["speed"] else None,
            budget=Budget(**data["budget"]),
            reserve_bytes=data["reserve_bytes"],
            changes=tuple(Change(**change) for change in data["changes"]),
            why=data["why"],
            frontier=tuple(Option.from_dict(option) for option in data["frontier"]),
            fallbacks=tuple(Recipe(**recipe) for recipe in data["fallbacks"]),
            model=data["model"],
            backend=data["backend"],
            gpu=data["gpu"],
            model_digest=data["model_digest"],
            notes=tuple(data["notes"]),
        )
        check_types(found)
        return found

    def save(self, file: str | Path) -> None:
        """Write it as JSON; `Plan.load` reads it again."""
        write_json(Path(file), self.to_dict())

    @classmethod
    def load(cls, file: str | Path) -> "Plan":
        """A plan that was saved, or that `fitroom plan --json` printed."""
        try:
            return cls.from_dict(read_json(Path(file)))
        except InputError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise InputError(
                f"No plan could be read from {str(file)!r}: {error}",
                hint="a file that `fitroom plan --save FILE` or `plan.save(file)` wrote",
            ) from error

    def __str__(self) -> str:
        from fitroom.report.plain import plain_text
        from fitroom.report.plan_text import plan_text

        return plain_text(plan_text(self))

    def __rich__(self) -> Any:
        """As text, where rich prints it."""
        from fitroom.report.plan_text import plan_text

        return plan_text(self)

    def _repr_html_(self) -> str:
        """As a few lines, where a notebook shows it."""
        from fitroom.report.notebook import plan_html

        return plan_html(self)
