"""The section of a run's page about its recipe: how each step was carried out, and why so."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fitroom.report.shared.templates import render_macro
from fitroom.report.shared.words import format_backend, format_figure
from fitroom.runs.job import format_remat
from fitroom.runs.run import Run
from fitroom.units import format_bytes

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class Fact:
    """A setting: its name, its value, and why it is so where that is known."""

    name: str
    value: object
    why: object = None


def render_recipe(run: Run) -> "Markup | None":
    """Render the reason for the recipe, then every setting that is known."""
    facts = [fact for fact in (*_list_task(run), *_list_step(run), *_list_place(run)) if fact.value not in (None, "")]
    why = run.train_job.recipe_why
    return render_macro("run/sections.html", "recipe", why, facts) if why or facts else None


def format_place(run: Run) -> str:
    """Say on which backend and device it ran: "JAX on NVIDIA H200"."""
    backend = run.train_job.backend or run.facts.get("backend")
    named = format_backend(str(backend)) if backend else None
    return " on ".join(str(part) for part in (named, run.train_job.device) if part)


def _list_task(run: Run) -> list[Fact]:
    job, size = run.train_job, run.train_job.image_size
    return [
        Fact("model", _format_model(run)),
        Fact("image size", f"{size} x {size}" if size else None),
        Fact("epochs", job.epochs or run.facts["epochs"]),
        Fact("augmentation", _format_options(job.augmentation)),
    ]


def _list_step(run: Run) -> list[Fact]:
    job, given = run.train_job, run.facts.get("recipe") or {}
    batch_size = job.recipe.batch_size or run.facts.get("batch_size")
    micro_batch = job.recipe.micro_batch or given.get("micro_batch")
    optimizer = job.optimizer or ((run.facts.get("model") or {}).get("optimizer") or {}).get("class")
    rate = job.learning_rate or run.facts.get("learning_rate")
    return [
        Fact("batch", f"{batch_size} samples per update" if batch_size else None),
        Fact("micro-batch", micro_batch or ("the whole batch" if batch_size else None)),
        Fact("recomputed", format_remat(job.recipe.remat or given.get("remat"))),
        Fact("kernels", job.recipe.kernels or given.get("kernels")),
        Fact("compiled", {True: "the whole step", False: "no", None: None}[job.recipe.jit]),
        Fact("precision", job.precision.policy or given.get("precision"), job.precision.why),
        Fact("optimizer", optimizer, f"learning rate {format_figure(rate)}" if rate else None),
    ]


def _list_place(run: Run) -> list[Fact]:
    budget, seed = run.train_job.budget, run.train_job.data.seed
    return [
        Fact("budget", format_bytes(budget.bytes) if budget.bytes else None, budget.source),
        Fact("backend", format_place(run)),
        Fact("seed", run.facts.get("seed") if seed is None else seed),
    ]


def _format_model(run: Run) -> str:
    model = run.train_job.model
    count, trainable = model.parameters, model.trainable_parameters
    parts = [model.name or model.text or ""]
    parts += [f"{count:,} parameters"] if count is not None else []
    parts += [f"{trainable:,} of them trained"] if trainable is not None and trainable != count else []
    parts += [f"weights: {model.weights}"] if model.weights else []
    return ", ".join(part for part in parts if part)


def _format_options(values: dict[str, object] | None) -> str | None:
    used = {key: value for key, value in (values or {}).items() if value not in (None, False)}
    return ", ".join(key if value is True else f"{key} {value}" for key, value in used.items())
