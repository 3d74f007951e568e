"""The sentences about a run."""

import re
from dataclasses import dataclass
from typing import Literal

from fitroom.report.shared.words import format_count, format_duration, format_figure, format_share
from fitroom.runs.run import Run
from fitroom.units import format_bytes, used_of

Tone = Literal["good", "plain", "alarm"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How the run went, in a headline and a sentence."""

    headline: str
    sentence: str
    tone: Tone

    def __str__(self) -> str:
        return " ".join(part for part in (self.headline, self.sentence) if part)


def judge_run(run: Run) -> Verdict:
    """Say how the run went: what a reader wants to know first."""
    took = ", ".join(part for part in (_format_memory(run), _format_time(run)) if part)
    if run.state == "finished":
        guesses = bool(run.results and run.results.num_images and run.results.is_guessing)
        parts = ["Always predicting the most frequent class would do as well." if guesses else ""]
        parts.append(f"{took[0].upper()}{took[1:]}." if took else "")
        sentence = " ".join(part for part in parts if part)
        return Verdict(
            headline=f"Trained: {_format_result(run)}.", sentence=sentence, tone="plain" if guesses else "good"
        )
    done = f"{run.num_epochs} of {format_count(run.facts['epochs'], 'epoch')}"
    if run.state == "running":
        return Verdict(headline=f"Training: {done} done so far.", sentence=_format_so_far(run), tone="plain")
    if run.state == "unfinished":
        return Verdict(headline=f"Not finished: {done} done.", sentence=_format_so_far(run), tone="plain")
    word = "Interrupted" if run.state == "interrupted" else "Stopped before the end"
    resume = (
        f"{'Run the same command' if run.train_job else 'Make the same call'} again to resume from the last checkpoint."
    )
    why = next((str(event.get("message")) for event in reversed(run.events) if event.get("kind") == "failed"), "")
    sentence = " ".join(part for part in (why, _format_so_far(run), resume) if part)
    return Verdict(headline=f"{word}: {done} done.", sentence=sentence, tone="alarm")


def format_title(run: Run) -> str:
    """Say what was trained on what: "xception on flowers"."""
    given = (run.train_job.model.text or run.train_job.model.name, run.train_job.data.folder)
    # Either may be a path, of this system or of another.
    named = [re.split(r"[/\\]", part.rstrip("/\\"))[-1] for part in given if part]
    return " on ".join(named) or run.path.absolute().name


def is_share(metric: str) -> bool:
    """Whether a metric is read in percent."""
    return metric.removeprefix("val_").endswith(("accuracy", "precision", "recall", "acc"))


def format_metric_name(metric: str) -> str:
    """Write the name of a Keras metric in words.

    >>> format_metric_name("val_sparse_categorical_accuracy"), format_metric_name("loss")
    ('accuracy', 'loss')
    """
    base = metric.removeprefix("val_")
    known = ("sparse_categorical_accuracy", "categorical_accuracy", "binary_accuracy", "acc")
    return "accuracy" if base in known else base.replace("_", " ")


def compare_with_prediction(predicted_bytes: int, measured_bytes: int) -> str:
    """Say how far the measured size is from the predicted one.

    >>> compare_with_prediction(1000, 1008), compare_with_prediction(1000, 1000)
    ('0.8 % more than predicted', 'as predicted')
    """
    difference = (measured_bytes - predicted_bytes) / predicted_bytes
    if abs(difference) < 0.0005:
        return "as predicted"
    return f"{abs(100 * difference):.1f} % {'more' if difference > 0 else 'less'} than predicted"


def _format_result(run: Run) -> str:
    results = run.results
    if results is not None and results.num_images:
        right = format_share(results.num_right / results.num_images)
        return f"accuracy {right} on {format_count(results.num_images, 'held-out image')}"
    last = {name: values[-1] for name, values in run.history.items() if values}
    for metric in sorted(last, key=lambda name: (not is_share(name), not name.startswith("val_"), name)):
        where = "in validation" if metric.startswith("val_") else "in training"
        value = format_share(last[metric]) if is_share(metric) else format_figure(last[metric])
        return f"{format_metric_name(metric)} {value} {where} after {format_count(run.num_epochs, 'epoch')}"
    return format_count(run.facts["epochs"], "epoch")


def _format_memory(run: Run) -> str:
    peak_bytes = run.readings.peak_bytes
    if peak_bytes is None:
        return ""
    return f"in {used_of(peak_bytes, run.limit_bytes)}" if run.limit_bytes else f"in {format_bytes(peak_bytes)}"


def _format_time(run: Run) -> str:
    return format_duration(run.seconds) if run.seconds else ""


def _format_so_far(run: Run) -> str:
    loss = next((values[-1] for name, values in run.history.items() if name == "loss" and values), None)
    parts = [f"loss {format_figure(loss)}" if loss is not None else "", _format_memory(run), _format_time(run)]
    said = ", ".join(part for part in parts if part)
    return f"So far: {said}." if said else ""
