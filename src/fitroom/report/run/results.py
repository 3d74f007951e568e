"""The sections of a run's page about what the model gets right, and about the classes. An empty one is None."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fitroom.report.shared.templates import render_macro
from fitroom.report.shared.words import format_share
from fitroom.runs.results import Results
from fitroom.runs.run import Run

if TYPE_CHECKING:
    from markupsafe import Markup

_TEMPLATE = "run/results.html"
_MAX_MATRIX = 40
_MAX_CONFUSIONS = 8
_MAX_CLASSES = 1000
_NUM_ANSWERS = 3
_MAX_IMAGE_CHARACTERS = 500_000
"""How many characters of the page images may take."""

_DEEPEST = 0.6
"""How strong the deepest shade is, so that figures can be read on it in light and dark."""

MatrixRow = tuple[str, list[tuple[int, str, float]]]
"""A true class, and for each predicted one how often, "right" or "wrong", and how strong its shade is."""


def render_confusion(run: Run) -> "Markup | None":
    """Render which class is taken for which."""
    results = run.results
    if results is None or not results.num_images:
        return None
    mistakes = results.confusions()[:_MAX_CONFUSIONS]
    matrix = _make_matrix(results) if len(results.classes) <= _MAX_MATRIX else None
    return render_macro(_TEMPLATE, "confusion", mistakes, results.classes, matrix)


def render_samples(run: Run) -> "Markup | None":
    """Render sample images with the classes that the model predicts for them, mistakes first."""
    if run.results is None or not run.results.samples:
        return None
    samples, room = [], _MAX_IMAGE_CHARACTERS
    for sample in sorted(run.results.samples, key=lambda sample: sample.is_right):
        room -= len(sample.thumbnail or "")
        samples.append(sample if room > 0 else replace(sample, thumbnail=None))
    return render_macro(_TEMPLATE, "samples", samples, _NUM_ANSWERS)


def render_classes(run: Run) -> "Markup | None":
    """Render how many images each class has, and how well it is recognised."""
    job = run.train_job
    splits = {split: of_split for split, of_split in job.data.counts.items() if of_split}
    names = list(job.classes or (run.results.classes if run.results else ()))
    if not names or not splits:
        return None
    trained = {each: splits.get("train", {}).get(each, 0) for each in names}
    largest = max(trained.values()) or 1
    found = {each: index for index, each in enumerate(run.results.classes)} if run.results else {}
    rows = [
        (
            each,
            trained[each] / largest,
            [
                *(f"{of_split.get(each, 0):,}" for of_split in splits.values()),
                *(_format_quality(run.results, found.get(each)) if run.results else ()),
            ],
        )
        for each in names[:_MAX_CLASSES]
    ]
    heads = ["class", *splits, *(["recall", "precision"] if found else [])]
    return render_macro(
        _TEMPLATE, "classes", trained, _compare_classes(trained), job.data.warnings, heads, rows, bool(found)
    )


def _format_quality(results: Results, index: int | None) -> Sequence[str]:
    """Return recall and precision of a class."""
    if index is None:
        return [format_share(None)] * 2
    return [format_share(results.recall(index)), format_share(results.precision(index))]


def _compare_classes(trained: dict[str, int]) -> dict[str, object]:
    """Return the largest and the smallest class, and how many times as many images the largest has."""
    largest, smallest = max(trained, key=trained.__getitem__), min(trained, key=trained.__getitem__)
    times = trained[largest] / trained[smallest] if trained[smallest] else None
    return {"largest": largest, "smallest": smallest, "times": times, "total": sum(trained.values())}


def _make_matrix(results: Results) -> list[MatrixRow]:
    worst = max((mistake.count for mistake in results.confusions()), default=1)
    rows = []
    for index, counts in enumerate(results.confusion):
        # What is right is shaded by its share of the class, a mistake by how it compares with the most frequent one.
        wholes = [sum(counts) if column == index else worst for column in range(len(counts))]
        cells = [
            (count, "right" if column == index else "wrong", _DEEPEST * count / whole if count else 0.0)
            for column, (count, whole) in enumerate(zip(counts, wholes, strict=True))
        ]
        rows.append((results.classes[index], cells))
    return rows
