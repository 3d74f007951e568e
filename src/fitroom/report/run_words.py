"""The sentences about a run."""

import re
from dataclasses import dataclass
from typing import Literal

from fitroom.report.run_record import Run
from fitroom.units import format_bytes, used_of

Tone = Literal["good", "plain", "alarm"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How the run stands, in a headline and a sentence."""

    headline: str
    sentence: str
    tone: Tone

    def __str__(self) -> str:
        return " ".join(part for part in (self.headline, self.sentence) if part)


def verdict(run: Run) -> Verdict:
    """What a reader wants to know first."""
    took = ", ".join(part for part in (_memory(run), _time(run)) if part)
    if run.state == "finished":
        guesses = bool(run.results and run.results.num_pictures and run.results.is_guessing)
        parts = ["Naming the most frequent class every time would do as well." if guesses else ""]
        parts.append(f"{took[0].upper()}{took[1:]}." if took else "")
        sentence = " ".join(part for part in parts if part)
        return Verdict(headline=f"Trained: {_achieved(run)}.", sentence=sentence, tone="plain" if guesses else "good")
    done = f"{run.num_epochs} of {epochs(run.facts['epochs'])}"
    if run.state == "running":
        return Verdict(headline=f"Training: {done} done so far.", sentence=_so_far(run), tone="plain")
    if run.state == "unfinished":
        return Verdict(headline=f"Not finished: {done} done.", sentence=_so_far(run), tone="plain")
    word = "Interrupted" if run.state == "interrupted" else "Stopped before the end"
    goes_on = f"The same {'command' if run.job else 'call'} again goes on from the last checkpoint."
    why = next((str(event.get("message")) for event in reversed(run.events) if event.get("kind") == "failed"), "")
    sentence = " ".join(part for part in (why, _so_far(run), goes_on) if part)
    return Verdict(headline=f"{word}: {done} done.", sentence=sentence, tone="alarm")


def title(run: Run) -> str:
    """What was trained on what: "xception on flowers"."""
    given = (run.job_fact("model", "text") or run.job_fact("model", "name"), run.job_fact("data", "folder"))
    # Either may be a path, of this system or of another.
    named = [re.split(r"[/\\]", str(part).rstrip("/\\"))[-1] for part in given if part]
    return " on ".join(named) or run.path.absolute().name


def duration(seconds: float) -> str:
    """A time for reading.

    >>> duration(7.2), duration(444), duration(7_500)
    ('7 seconds', '7 minutes', '2 h 05 min')
    """
    if seconds < 59.5:
        return _counted(round(seconds), "second")
    minutes = round(seconds / 60)
    return _counted(minutes, "minute") if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


def fraction(share: float | None) -> str:
    """A share in percent; unknown is a dash.

    >>> fraction(0.9123), fraction(None)
    ('91.2 %', '-')
    """
    return "-" if share is None else f"{100 * share:.1f} %"


def figure(value: float | None) -> str:
    """A number with the digits that say something.

    >>> figure(0.31234), figure(1234.5), figure(0.00012345), figure(None)
    ('0.3123', '1,234', '0.0001234', '-')
    """
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def is_share(metric: str) -> bool:
    """Whether a metric is read in percent."""
    return metric.removeprefix("val_").endswith(("accuracy", "precision", "recall", "acc"))


def metric_name(metric: str) -> str:
    """A metric of Keras in words.

    >>> metric_name("val_sparse_categorical_accuracy"), metric_name("loss")
    ('accuracy', 'loss')
    """
    base = metric.removeprefix("val_")
    known = ("sparse_categorical_accuracy", "categorical_accuracy", "binary_accuracy", "acc")
    return "accuracy" if base in known else base.replace("_", " ")


def measured_against_predicted(predicted_bytes: int, measured_bytes: int) -> str:
    """How far off the prediction was.

    >>> measured_against_predicted(1000, 1008), measured_against_predicted(1000, 1000)
    ('0.8 % more than predicted', 'as predicted')
    """
    difference = (measured_bytes - predicted_bytes) / predicted_bytes
    if abs(difference) < 0.0005:
        return "as predicted"
    return f"{abs(100 * difference):.1f} % {'more' if difference > 0 else 'less'} than predicted"


def epochs(count: int) -> str:
    """A number of epochs."""
    return _counted(count, "epoch")


def _achieved(run: Run) -> str:
    results = run.results
    if results is not None and results.num_pictures:
        right = fraction(results.num_right / results.num_pictures)
        return f"{right} right on {_counted(results.num_pictures, 'picture')} it never saw in training"
    last = {name: values[-1] for name, values in run.history.items() if values}
    for metric in sorted(last, key=lambda name: (not is_share(name), not name.startswith("val_"), name)):
        where = "in validation" if metric.startswith("val_") else "in training"
        value = fraction(last[metric]) if is_share(metric) else figure(last[metric])
        return f"{metric_name(metric)} {value} {where} after {epochs(run.num_epochs)}"
    return epochs(run.facts["epochs"])


def _memory(run: Run) -> str:
    peak_bytes = run.readings.peak_bytes
    if peak_bytes is None:
        return ""
    return f"in {used_of(peak_bytes, run.limit_bytes)}" if run.limit_bytes else f"in {format_bytes(peak_bytes)}"


def _time(run: Run) -> str:
    return duration(run.seconds) if run.seconds else ""


def _so_far(run: Run) -> str:
    loss = next((values[-1] for name, values in run.history.items() if name == "loss" and values), None)
    parts = [f"loss {figure(loss)}" if loss is not None else "", _memory(run), _time(run)]
    said = ", ".join(part for part in parts if part)
    return f"So far: {said}." if said else ""


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
