"""The section of a run's page about its recipe: how each step was carried out, and why so."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fitroom.report.shared.templates import render_macro
from fitroom.report.shared.words import format_backend, format_figure
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
    why = run.job_fact("recipe_why")
    return render_macro("run/sections.html", "recipe", why, facts) if why or facts else None


def format_place(run: Run) -> str:
    """Say on which backend and device it ran: "JAX on NVIDIA H200"."""
    backend = run.job_fact("backend") or run.facts.get("backend")
    named = format_backend(str(backend)) if backend else None
    return " on ".join(str(part) for part in (named, run.job_fact("device")) if part)


def _list_task(run: Run) -> list[Fact]:
    size = run.job_fact("image_size")
    return [
        Fact("model", _format_model(run)),
        Fact("image size", f"{size} x {size}" if size else None),
        Fact("epochs", run.job_fact("epochs") or run.facts["epochs"]),
        Fact("augmentation", _format_options(run.job_fact("augmentation"))),
    ]


def _list_step(run: Run) -> list[Fact]:
    fact, given = run.job_fact, run.facts.get("recipe") or {}
    batch_size = fact("recipe", "batch_size") or run.facts.get("batch_size")
    micro_batch = fact("recipe", "micro_batch") or given.get("micro_batch")
    optimizer = fact("optimizer") or ((run.facts.get("model") or {}).get("optimizer") or {}).get("class")
    rate = fact("learning_rate") or run.facts.get("learning_rate")
    return [
        Fact("batch", f"{batch_size} samples per update" if batch_size else None),
        Fact("micro-batch", micro_batch or ("the whole batch" if batch_size else None)),
        Fact("recomputed", _format_remat(fact("recipe", "remat") or given.get("remat"))),
        Fact("compiled", {True: "the whole step", False: "no"}.get(fact("recipe", "jit"))),
        Fact("precision", fact("precision", "policy") or given.get("precision"), fact("precision", "why")),
        Fact("optimizer", optimizer, f"learning rate {format_figure(rate)}" if rate else None),
    ]


def _list_place(run: Run) -> list[Fact]:
    limit_bytes = run.job_fact("budget", "bytes")
    seed = run.job_fact("data", "seed")
    return [
        Fact("budget", format_bytes(limit_bytes) if limit_bytes else None, run.job_fact("budget", "source")),
        Fact("backend", format_place(run)),
        Fact("seed", run.facts.get("seed") if seed is None else seed),
    ]


def _format_model(run: Run) -> str | None:
    model = run.job_fact("model")
    if not isinstance(model, dict):
        return None
    count, trainable = model.get("parameters"), model.get("trainable_parameters")
    parts = [str(model.get("name") or model.get("text") or "")]
    parts += [f"{count:,} parameters"] if isinstance(count, int) else []
    parts += [f"{trainable:,} of them trained"] if isinstance(trainable, int) and trainable != count else []
    parts += [f"weights: {model['weights']}"] if model.get("weights") else []
    return ", ".join(part for part in parts if part)


def _format_remat(remat: object) -> str | None:
    """Say what is recomputed, where anything is."""
    if isinstance(remat, dict):
        num_segments = len(remat.get("segments") or ())
        return f"{num_segments} segment{'' if num_segments == 1 else 's'}"
    return None if remat in (None, "none") else str(remat)


def _format_options(values: object) -> str | None:
    if isinstance(values, dict):
        used = {key: value for key, value in values.items() if value not in (None, False)}
        return ", ".join(str(key) if value is True else f"{key} {value}" for key, value in used.items())
    return str(values) if values else None
