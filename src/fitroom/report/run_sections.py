"""The sections of a run's page about training, memory, recipe and events. One that has nothing to show is empty."""

import shlex
from html import escape
from pathlib import Path

from fitroom.estimating.result import Estimate
from fitroom.report.markup import details, name, table
from fitroom.report.rows import kind_rows, layer_rows
from fitroom.report.run_charts import memory_charts, training_charts
from fitroom.report.run_record import Run
from fitroom.report.run_words import figure, measured_against_predicted
from fitroom.report.words import backend_name, found_by, peak_place, percent
from fitroom.units import format_bytes

_NUM_LAYERS = 10
_MAX_EVENTS = 200
_MAX_SKIPPED = 500


def training(run: Run) -> str:
    """The curves."""
    charts = [chart.html() for chart in training_charts(run)]
    return f'<div class="charts">{"".join(charts)}</div>' if charts else ""


def memory(run: Run) -> str:
    """Where the bytes go, and whether the prediction was right."""
    parts = [chart.html() for chart in memory_charts(run)]
    if not parts:
        return ""
    compared = _compared(run)
    if run.estimate is None:
        return compared + "".join(parts)
    kinds = f'<table class="kinds"><caption>At the peak</caption>{kind_rows(run.estimate)}</table>'
    of_step = f'<div class="beside">{parts[0]}{kinds}</div>'
    return compared + of_step + "".join(parts[1:]) + _layers(run.estimate)


def recipe(run: Run) -> str:
    """How each step was carried out, and why so."""
    rows = [(head, said) for head, said in _recipe_rows(run) if said]
    why = run.job_fact("recipe_why")
    reason = f'<p class="why">{escape(str(why))}</p>' if why else ""
    return reason + _pairs(rows)


def events(run: Run) -> str:
    """What happened on the way."""
    shown = run.events[-_MAX_EVENTS:]
    items = "\n".join(
        f"<li><time>{escape(str(event.get('time', ''))[:19].replace('T', ' '))}</time> "
        f"<b>{escape(str(event.get('kind', 'event')))}</b> <span>{escape(str(event.get('message', '')))}</span></li>"
        for event in shown
    )
    more = len(run.events) - len(shown)
    said = f'<p class="muted">And {more:,} before, in log.jsonl.</p>' if more else ""
    return f'<ol class="events">{items}</ol>{said}' if shown else ""


def skipped(run: Run) -> str:
    """Files that were left out, each with the reason."""
    if not run.skipped:
        return ""
    rows = ([name(file), escape(reason)] for file, reason in run.skipped[:_MAX_SKIPPED])
    more = len(run.skipped) - _MAX_SKIPPED
    said = f'<p class="muted">And {more:,} more, in skipped.jsonl.</p>' if more > 0 else ""
    return f'<div class="scroll" tabindex="0">{table(["file", "why"], rows, kind="texts")}</div>{said}'


def again(run: Run) -> str:
    """The commands for doing it again and for using the model."""
    folder = shlex.quote(str(run.path))
    command = run.job.get("command")
    if isinstance(command, list) and command:
        program = "fitroom" if Path(str(command[0])).stem in ("fitroom", "__main__") else str(command[0])
        asked = shlex.join([program, *map(str, command[1:])])
        commands = [("Run it again", asked), ("Predict", f"fitroom predict {folder} picture.jpg")]
    else:
        model = str(run.path / "model.keras")
        commands = [("Go on, or read the result", f"fitroom.fit(model, ..., run_dir={str(run.path)!r})")]
        commands += [("Use the model", f"keras.saving.load_model({model!r})")] if run.state == "finished" else []
    commands.append(("Make this report again", f"fitroom report {folder}"))
    return _pairs([(head, f"<code>{escape(text)}</code>") for head, text in commands])


def versions(run: Run) -> str:
    """What it was made with."""
    known = run.job.get("versions") or run.facts.get("versions") or {}
    return _pairs([(escape(str(package)), escape(str(version))) for package, version in dict(known).items()])


def _compared(run: Run) -> str:
    """Predicted and measured as bars on one scale, with the limit at its end or within it."""
    measured, limit = run.readings.peak_bytes, run.limit_bytes
    predicted = run.estimate.timeline.peak_bytes if run.estimate else None
    sizes = [("predicted", predicted, "--first"), ("measured", measured, "--second"), ("limit", limit, "--muted")]
    known = [(head, size, colour) for head, size, colour in sizes if size]
    if len(known) < 2:
        return ""
    largest = max(size for _, size, _ in known)
    rows = "\n".join(
        f'<tr style="--share:{100 * size / largest:.1f}%;--bar:var({colour})"><th scope="row">{head}</th>'
        f'<td class="bar"><i></i></td><td>{format_bytes(size)}</td></tr>'
        for head, size, colour in known
    )
    return f'<table class="compared"><caption>{_comparison(run)}</caption>{rows}</table>'


def _comparison(run: Run) -> str:
    measured = run.readings.peak_bytes
    if run.estimate is None or measured is None:
        return "The peak of training"
    said = f"The peak was {measured_against_predicted(run.estimate.timeline.peak_bytes, measured)}"
    if len(run.readings.micro_batches) > 1:
        sizes = ", ".join(map(str, run.readings.micro_batches))
        said += f"; the micro-batch changed on the way ({sizes}), the prediction is for one size"
    return said + "."


def _layers(estimate: Estimate) -> str:
    rows, others = estimate.by_layer[:_NUM_LAYERS], estimate.by_layer[_NUM_LAYERS:]
    place = f'<p class="muted">The peak is at <span class="path">{escape(peak_place(estimate))}</span>. '
    found = f"{escape(found_by(estimate))}</p>"
    shown = f'<table class="layers"><caption>The biggest layers</caption>{layer_rows(estimate, rows)}</table>'
    if not others:
        return shown + place + found
    rest = sum(row.bytes for row in others)
    summary = f"{len(others):,} more layers, {percent(rest, estimate.timeline.peak_bytes)} together"
    body = f'<div class="scroll" tabindex="0"><table class="layers">{layer_rows(estimate, others)}</table></div>'
    return shown + details(summary, body) + place + found


def _recipe_rows(run: Run) -> list[tuple[str, str]]:
    """Each row is HTML, empty where it is unknown."""
    fact = run.job_fact
    batch_size = fact("recipe", "batch_size") or run.facts.get("batch_size")
    at_once = fact("recipe", "micro_batch") or (run.facts.get("recipe") or {}).get("micro_batch")
    precision = fact("precision", "policy") or (run.facts.get("recipe") or {}).get("precision")
    size = fact("image_size")
    limit = fact("budget", "bytes")
    optimizer = fact("optimizer") or ((run.facts.get("model") or {}).get("optimizer") or {}).get("class")
    rate = fact("learning_rate") or run.facts.get("learning_rate")
    backend = fact("backend") or run.facts.get("backend")
    return [
        ("model", _said(_model(run))),
        ("pictures", _said(f"{size} x {size}" if size else None)),
        ("batch", _said(f"{batch_size} pictures an update" if batch_size and run.job else batch_size)),
        ("on the device at once", _said(at_once or ("the whole batch" if batch_size else None))),
        ("precision", _said(precision, fact("precision", "why"))),
        ("optimizer", _said(optimizer, f"learning rate {figure(rate)}" if rate else None)),
        ("epochs", _said(fact("epochs") or run.facts["epochs"])),
        ("budget", _said(format_bytes(limit) if limit else None, fact("budget", "source"))),
        ("augmentation", _said(_listed(fact("augmentation")))),
        ("backend", _said(" on ".join(str(p) for p in (backend and backend_name(backend), fact("device")) if p))),
        ("seed", _said(fact("data", "seed") if run.job else run.facts.get("seed"))),
    ]


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


def _listed(values: object) -> str | None:
    if isinstance(values, dict):
        return ", ".join(f"{key} {value}" for key, value in values.items() if value not in (None, False))
    return str(values) if values else None


def _said(value: object, why: object = None) -> str:
    if value in (None, ""):
        return ""
    reason = f' <span class="muted">{escape(str(why))}</span>' if why else ""
    return f"{escape(str(value))}{reason}"


def _pairs(rows: list[tuple[str, str]]) -> str:
    items = "".join(f"<dt>{head}</dt><dd>{said}</dd>" for head, said in rows)
    return f'<dl class="pairs">{items}</dl>' if rows else ""
