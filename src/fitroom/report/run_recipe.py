"""The section of a run's page about its recipe: how each step was carried out, and why so."""

from html import escape

from fitroom.report.markup import pairs
from fitroom.report.run_record import Run
from fitroom.report.run_words import figure
from fitroom.report.words import backend_name
from fitroom.units import format_bytes


def recipe(run: Run) -> str:
    """The reason, then every setting that is known."""
    why = run.job_fact("recipe_why")
    reason = f'<p class="why">{escape(str(why))}</p>' if why else ""
    return reason + pairs([*_task(run), *_step(run), *_place(run)])


def _task(run: Run) -> list[tuple[str, str]]:
    size = run.job_fact("image_size")
    return [
        ("model", _said(_model(run))),
        ("pictures", _said(f"{size} x {size}" if size else None)),
        ("epochs", _said(run.job_fact("epochs") or run.facts["epochs"])),
        ("augmentation", _said(_listed(run.job_fact("augmentation")))),
    ]


def _step(run: Run) -> list[tuple[str, str]]:
    fact, given = run.job_fact, run.facts.get("recipe") or {}
    batch_size = fact("recipe", "batch_size") or run.facts.get("batch_size")
    at_once = fact("recipe", "micro_batch") or given.get("micro_batch")
    optimizer = fact("optimizer") or ((run.facts.get("model") or {}).get("optimizer") or {}).get("class")
    rate = fact("learning_rate") or run.facts.get("learning_rate")
    return [
        ("batch", _said(f"{batch_size} samples an update" if batch_size else None)),
        ("on the device at once", _said(at_once or ("the whole batch" if batch_size else None))),
        ("recomputed", _said(_recomputed(fact("recipe", "remat") or given.get("remat")))),
        ("compiled", _said({True: "the whole step", False: "no"}.get(fact("recipe", "jit")))),
        ("precision", _said(fact("precision", "policy") or given.get("precision"), fact("precision", "why"))),
        ("optimizer", _said(optimizer, f"learning rate {figure(rate)}" if rate else None)),
    ]


def _place(run: Run) -> list[tuple[str, str]]:
    limit_bytes = run.job_fact("budget", "bytes")
    seed = run.job_fact("data", "seed")
    return [
        ("budget", _said(format_bytes(limit_bytes) if limit_bytes else None, run.job_fact("budget", "source"))),
        ("backend", _said(where(run))),
        ("seed", _said(run.facts.get("seed") if seed is None else seed)),
    ]


def where(run: Run) -> str:
    """Backend and device: "JAX on NVIDIA H200"."""
    backend = run.job_fact("backend") or run.facts.get("backend")
    named = backend_name(str(backend)) if backend else None
    return " on ".join(str(part) for part in (named, run.job_fact("device")) if part)


def _model(run: Run) -> str | None:
    model = run.job_fact("model")
    if not isinstance(model, dict):
        return None
    count, trainable = model.get("parameters"), model.get("trainable_parameters")
    parts = [str(model.get("name") or model.get("text") or "")]
    parts += [f"{count:,} parameters"] if isinstance(count, int) else []
    parts += [f"{trainable:,} of them trained"] if isinstance(trainable, int) and trainable != count else []
    parts += [f"weights: {model['weights']}"] if model.get("weights") else []
    return ", ".join(part for part in parts if part)


def _recomputed(remat: object) -> str | None:
    """Where something is."""
    if isinstance(remat, dict):
        num_segments = len(remat.get("segments") or ())
        return f"{num_segments} segment{'' if num_segments == 1 else 's'}"
    return None if remat in (None, "none") else str(remat)


def _listed(values: object) -> str | None:
    if isinstance(values, dict):
        used = {key: value for key, value in values.items() if value not in (None, False)}
        return ", ".join(str(key) if value is True else f"{key} {value}" for key, value in used.items())
    return str(values) if values else None


def _said(value: object, why: object = None) -> str:
    if value in (None, ""):
        return ""
    reason = f' <span class="muted">{escape(str(why))}</span>' if why else ""
    return f"{escape(str(value))}{reason}"
