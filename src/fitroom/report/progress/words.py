"""The sentences about a training while it runs."""

from typing import Any

from fitroom.report.shared.words import format_backend, format_count
from fitroom.runs.job import Job, format_remat
from fitroom.units import format_bytes

Pair = tuple[str, str]
"""A name and a figure."""


def format_headline(job: Job) -> str:
    """Say what is trained, as far as `job.json` tells.

    >>> values = {"model": {"text": "xception"}, "image_size": 299, "backend": "jax", "device": "NVIDIA H200",
    ...           "recipe": {"batch_size": 256, "micro_batch": 64}, "precision": {"policy": "float32"}, "epochs": 10}
    >>> format_headline(Job.from_dict(values))
    'xception at 299 px, batch 256 in micro-batches of 64, float32, JAX on NVIDIA H200, 10 epochs'
    """
    recipe, model = job.recipe, job.model.text or "the model"
    remat, backend = format_remat(recipe.remat), format_backend(job.backend) if job.backend else None
    micro_batches = f" in micro-batches of {recipe.micro_batch}" if recipe.micro_batch else ""
    parts = (
        f"{model} at {job.image_size} px" if job.image_size else model,
        f"batch {recipe.batch_size}{micro_batches}" if recipe.batch_size else None,
        f"{remat} recomputed" if remat else None,
        job.precision.policy,
        " on ".join(filter(None, (backend, job.device))),
        format_count(job.epochs, "epoch") if job.epochs else None,
    )
    return ", ".join(filter(None, parts))


def format_event(event: dict[str, Any]) -> str:
    """Say what happened: in short where the facts are known, otherwise by the event's own message.

    >>> format_event({"kind": "out of memory", "during": "training", "epoch": 0, "batch": 11, "samples": 64,
    ...             "smaller": 32, "message": "..."})
    'out of memory at batch 12 of epoch 1: micro-batch 64 to 32, batch repeated'
    >>> format_event({"kind": "out of memory", "during": "training", "epoch": 0, "batch": 11, "samples": 64,
    ...             "smaller": 64, "recomputed": "blocks recomputed", "message": "..."})
    'out of memory at batch 12 of epoch 1: blocks recomputed, batch repeated'
    """
    try:
        if event["kind"] == "out of memory" and event["during"] == "training":
            place = f"batch {event['batch'] + 1} of epoch {event['epoch'] + 1}"
            is_smaller = event["smaller"] < event["samples"]
            size = f"micro-batch {event['samples']} to {event['smaller']}" if is_smaller else None
            changes = ", ".join(filter(None, (event.get("recomputed"), size)))
            return f"out of memory at {place}: {changes}, batch repeated"
    except KeyError:
        pass
    return str(event.get("message", event.get("kind", "")))


def format_metrics(loss: Any, metrics: dict[str, Any]) -> list[Pair]:
    """Write the loss and the metrics.

    >>> format_metrics(0.5, {"accuracy": 0.25})
    [('loss', '0.5000'), ('accuracy', '0.2500')]
    """
    return [(name, format_figure(value)) for name, value in ({"loss": loss} | metrics).items()]


def format_figure(value: Any) -> str:
    """Write a number that keeps its width while it changes.

    >>> format_figure(0.81234), format_figure(1234.5), format_figure(0.00002), format_figure(None)
    ('0.8123', '1234.5', '2.0e-05', 'not a number')
    """
    if not isinstance(value, int | float):
        return "not a number" if value is None else str(value)
    if value and not 0.001 <= abs(value) < 1e6:
        return f"{value:.1e}"
    return f"{value:.4f}" if abs(value) < 1000 else f"{value:.1f}"


def format_time(seconds: float) -> str:
    """Write a time, as short as possible.

    >>> format_time(0.2), format_time(41.3), format_time(575), format_time(7_500), format_time(100_000)
    ('1 s', '41 s', '10 min', '2 h 05 min', '1 d 4 h')
    """
    if seconds < 59.5:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours = round(seconds / 3600)
    return f"{minutes // 60} h {minutes % 60:02} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def format_speed(pictures_per_second: float) -> str:
    """Write the speed.

    >>> format_speed(1204.4), format_speed(3.14159)
    ('1,204 images/s', '3.1 images/s')
    """
    digits = 0 if pictures_per_second >= 100 else 1
    return f"{pictures_per_second:,.{digits}f} images/s"


def get_memory_bytes(reading: dict[str, Any]) -> int | None:
    """Return the most that was in use, or what is in use where no peak is counted."""
    peak = reading.get("peak_bytes")
    return reading.get("in_use_bytes") if peak is None else peak


def format_summary(summary: dict[str, Any]) -> list[str]:
    """Say how the training ended.

    >>> format_summary({"state": "finished", "epochs": 10, "seconds": 575, "split": "test", "best_epoch": 6,
    ...                "metrics": {"accuracy": 0.91}})
    ['finished: 10 epochs in 10 min; on the test images: accuracy 0.9100 (epoch 7, the best on validation)']
    >>> format_summary({"state": "finished", "epochs": 10, "seconds": 14, "resumed": True, "report": "report.html"})
    ['finished: 10 epochs, 14 s since it resumed', 'report: report.html']
    """
    parts = []
    if summary.get("epochs") is not None:
        parts.append(f"{summary['epochs']} epoch{'' if summary['epochs'] == 1 else 's'}")
    if summary.get("seconds") is not None:
        took = format_time(summary["seconds"])
        # The time of the epochs before a run resumed is not known here.
        parts = [*parts, f"{took} since it resumed"] if summary.get("resumed") else [" ".join([*parts, "in", took])]
    if summary.get("peak_bytes") is not None:
        parts.append(f"at most {format_bytes(summary['peak_bytes'])} in use")
    said = "; ".join(filter(None, (", ".join(parts), _format_results(summary))))
    state = str(summary.get("state") or "ended")
    return [
        f"{state}: {said}" if said else state,
        *(f"{name}: {summary[key]}" for name, key in (("run", "run_dir"), ("report", "report")) if summary.get(key)),
    ]


def _format_results(summary: dict[str, Any]) -> str:
    """Write the metrics, with the images and the epoch that they belong to."""
    said = ", ".join(f"{name} {format_figure(value)}" for name, value in (summary.get("metrics") or {}).items())
    if said and summary.get("split"):
        said = f"on the {summary['split']} images: {said}"
    if said and summary.get("best_epoch") is not None:
        said += f" (epoch {summary['best_epoch'] + 1}, the best on validation)"
    return said
