"""How good a network is on pictures it was not trained on: `results.json`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fitroom.classify import records
from fitroom.classify.pictures import root_of
from fitroom.classify.prediction import Predictor
from fitroom.classify.preparation import Prepared
from fitroom.classify.publish import publish
from fitroom.errors import InputError
from fitroom.watch.listener import Listener

SAMPLES, MISTAKES = 24, 12
TOP = 5


def evaluate_and_publish(prepared: Prepared, view: Listener) -> dict[str, Any]:
    """Write `model.keras` and `results.json`, on the test pictures or else on those of validation."""
    pictures, options = prepared.pictures, prepared.options
    split = next((name for name in ("test", "validation") if getattr(pictures, name) is not None), "train")
    view.said(f"looking at what it makes of the {split} pictures")
    publish(prepared.network, prepared.folder)
    predictor = Predictor(
        prepared.network.model,
        image_size=prepared.job["image_size"],
        resize=options.resize,
        batch_size=prepared.choice.recipe.samples_at_once(options.batch_size),
        gives_probabilities=prepared.network.gives_probabilities,
    )
    results = evaluate(predictor, split, getattr(pictures, split).files, pictures.classes, root_of(options.folder))
    records.write_results(prepared.folder, results)
    return results


def evaluate(
    predictor: Predictor, split: str, files: Sequence[tuple[Path, int]], classes: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Metrics, confusion matrix, figures of each class and some pictures with what was made of them."""
    import numpy as np

    predictions = predictor.files([file for file, _ in files])
    pairs = [(one, label) for one, (_, label) in zip(predictions, files, strict=True) if one.reason is None]
    if not pairs:
        raise InputError(
            f"None of the {len(files)} pictures of {split} can be read any more.", hint=f"is {folder} there?"
        )
    found, labels = [one for one, _ in pairs], np.array([label for _, label in pairs])
    probabilities = np.stack([one.probabilities for one in found])
    logarithms = np.stack([one.logarithms for one in found])
    said = probabilities.argmax(axis=1)
    confusion: Any = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(confusion, (labels, said), 1)
    samples = _samples(labels, said, probabilities)
    return {
        "split": split,
        "metrics": _metrics(labels, probabilities, logarithms),
        "classes": list(classes),
        "confusion": confusion.tolist(),
        "per_class": {name: _figures(confusion, number) for number, name in enumerate(classes)},
        "samples": [_sample(found[index], classes, int(labels[index]), folder) for index in samples],
    }


def likeliest(probabilities: Any, classes: Sequence[str], count: int = TOP) -> list[list[Any]]:
    """The likeliest classes with their probabilities, best first."""
    order = (-probabilities).argsort(kind="stable")[:count]
    return [[classes[index], round(float(probabilities[index]), 6)] for index in order]


def _metrics(labels: Any, probabilities: Any, logarithms: Any) -> dict[str, float]:
    import numpy as np

    truth = np.arange(len(labels)), labels
    better = (probabilities > probabilities[truth][:, None]).sum(axis=1)
    found = {"loss": float(-logarithms[truth].mean()), "accuracy": float((better == 0).mean())}
    if probabilities.shape[1] > TOP:
        found[f"top_{TOP}_accuracy"] = float((better < TOP).mean())
    return found


def _figures(confusion: Any, number: int) -> dict[str, Any]:
    """None where there is nothing to divide by."""
    right, meant, said = int(confusion[number, number]), int(confusion[number].sum()), int(confusion[:, number].sum())
    return {
        "precision": right / said if said else None,
        "recall": right / meant if meant else None,
        "count": meant,
    }


def _samples(labels: Any, said: Any, probabilities: Any) -> list[int]:
    """The mistakes it was surest of, and right ones from all over."""
    import numpy as np

    wrong, right = np.flatnonzero(said != labels), np.flatnonzero(said == labels)
    surest = wrong[np.argsort(-probabilities[wrong].max(axis=1), kind="stable")][:MISTAKES]
    count = min(SAMPLES - len(surest), len(right))
    spread = right[np.linspace(0, len(right) - 1, count).astype(int)] if count else right[:0]
    return [*map(int, surest), *map(int, spread)]


def _sample(found: Any, classes: Sequence[str], label: int, folder: Path) -> dict[str, Any]:
    from fitroom.data import thumbnail

    file = found.file.relative_to(folder) if found.file.is_relative_to(folder) else found.file
    try:
        picture = thumbnail(found.file)
    except Exception:  # a picture for looking at is no reason to lose the results
        picture = None
    return {
        "file": str(file),
        "label": classes[label],
        "top": likeliest(found.probabilities, classes),
        "thumbnail": picture,
    }
