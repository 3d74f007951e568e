"""A plan: the recipe chosen for a budget, its memory and speed, what it changes, and the alternatives."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fitroom.budget import Budget
from fitroom.display import RichDisplay
from fitroom.errors import InputError
from fitroom.files.durable import read_json, write_json
from fitroom.files.field_types import check_types
from fitroom.memory.estimate import Estimate
from fitroom.planning.option import Change, Option, Speed
from fitroom.recipe import PRECISIONS, Recipe

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Plan(RichDisplay):
    """What `fitroom.plan` found. It prints itself; `fitroom.fit(model, ..., plan=plan)` carries it out."""

    recipe: Recipe
    """The recipe to train with."""

    batch_size: int
    """Samples per optimizer step; never changed."""

    micro_batch: int
    """The largest micro-batch; the whole batch where it is not split."""

    estimate: Estimate = field(repr=False)
    """What the recipe takes, estimated at its real size."""

    speed: Speed | None
    """None where the model's layers form no graph, so their operations cannot be counted."""

    budget: Budget
    reserve_bytes: int
    """The part of the budget that stays free on purpose."""

    changes: tuple[Change, ...]
    """The knobs that differ from what the user has, and what each changes about the result."""

    why: str
    """The reasons for this recipe and against others, in whole sentences."""

    frontier: tuple[Option, ...] = field(repr=False)
    """The alternatives, fastest first: each takes less memory or changes less than every faster one."""

    fallbacks: tuple[Recipe, ...] = field(repr=False)
    """The recipes to continue with if memory runs out anyway, each smaller than the one before."""

    model: str
    backend: str
    gpu: str
    model_digest: str
    """A digest of the model's layers and variables: a plan is for one model."""

    notes: tuple[str, ...] = ()

    @property
    def free_bytes(self) -> int:
        """The part of the budget that the recipe leaves free."""
        return self.budget.bytes - self.estimate.required_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; `from_dict` reads them."""
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
        """Read what `to_dict` returned."""
        if data.get("schema_version") != SCHEMA_VERSION:
            raise InputError(
                f"A plan of schema version {SCHEMA_VERSION} was expected. Received: {data.get('schema_version')!r}.",
                hint="make the plan again with `fitroom plan`",
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
        """Write the plan as JSON; `Plan.load` reads it."""
        write_json(Path(file), self.to_dict())

    @classmethod
    def load(cls, file: str | Path) -> "Plan":
        """Read a plan that `save` wrote or `fitroom plan --json` printed."""
        try:
            return cls.from_dict(read_json(Path(file)))
        except InputError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise InputError(
                f"No plan could be read from {str(file)!r}: {error}",
                hint="a file that `fitroom plan --save FILE` or `plan.save(file)` wrote",
            ) from error
