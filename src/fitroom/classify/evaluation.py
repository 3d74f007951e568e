"""Evaluation on test or validation images, written to `results.json`, and saving of the trained model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fitroom.classify import records
from fitroom.classify.compiling import make_plain
from fitroom.classify.images import find_data_root
from fitroom.classify.network import Network
from fitroom.classify.prediction import Predictor
from fitroom.classify.preparation import PreparedRun
from fitroom.classify.records import write_model
from fitroom.errors import InputError
from fitroom.watching.listener import Listener

SAMPLES, MISTAKES = 24, 12
TOP = 5


def evaluate_and_publish(prepared: PreparedRun, view: Listener) -> dict[str, Any]:
    """Write `model.keras` and `results.json`, evaluated on the test images, or else on those of validation."""
    images, options = prepared.images, prepared.options
    split = next((name for name in ("test", "validation") if getattr(images, name) is not None), "train")
    view.said(f"evaluating on {split}")
    publish(prepared.network, prepared.folder)
    predictor = Predictor(
        prepared.network.model,
        image_size=prepared.choice.image_size,
        resize=options.resize,
        batch_size=prepared.choice.recipe.samples_at_once(options.batch_size),
        gives_probabilities=prepared.network.gives_probabilities,
        for_loss=True,
    )
    results = evaluate(predictor, split, getattr(images, split).files, images.classes, find_data_root(options.folder))
    records.write_results(prepared.folder, results)
    return results


def evaluate(
    predictor: Predictor, split: str, files: Sequence[tuple[Path, int]], classes: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Metrics, confusion matrix, figures of each class, and sample images with their predictions."""
    import numpy as np

    predictions = predictor.files([file for file, _ in files])
    pairs = [(one, label) for one, (_, label) in zip(predictions, files, strict=True) if one.reason is None]
    if not pairs:
        raise InputError(
            f"None of the {len(files)} {split} images can be read any more.", hint=f"check that {folder} is still there"
        )
    found, labels = [one for one, _ in pairs], np.array([label for _, label in pairs])
    probabilities = np.stack([one.probabilities for one in found])
    logarithms = np.stack([one.logarithms for one in found])
    predicted = probabilities.argmax(axis=1)
    confusion: Any = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(confusion, (labels, predicted), 1)
    samples = _choose_samples(labels, predicted, probabilities)
    return {
        "split": split,
        "metrics": _metrics(labels, probabilities, logarithms),
        "classes": list(classes),
        "confusion": confusion.tolist(),
        "per_class": {name: _figures(confusion, number) for number, name in enumerate(classes)},
        "samples": [_sample(found[index], classes, int(labels[index]), folder) for index in samples],
    }


def top_classes(probabilities: Any, classes: Sequence[str], count: int = TOP) -> list[list[Any]]:
    """The most likely classes with their probabilities, best first."""
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
    """Precision and recall of a class, None where there is nothing to divide by, and how many images it has."""
    right, meant, said = int(confusion[number, number]), int(confusion[number].sum()), int(confusion[:, number].sum())
    return {
        "precision": right / said if said else None,
        "recall": right / meant if meant else None,
        "count": meant,
    }


def _choose_samples(labels: Any, predicted: Any, probabilities: Any) -> list[int]:
    """The mistakes with the highest probability, and right predictions spread over the split."""
    import numpy as np

    wrong, right = np.flatnonzero(predicted != labels), np.flatnonzero(predicted == labels)
    surest = wrong[np.argsort(-probabilities[wrong].max(axis=1), kind="stable")][:MISTAKES]
    count = min(SAMPLES - len(surest), len(right))
    spread = right[np.linspace(0, len(right) - 1, count).astype(int)] if count else right[:0]
    return [*map(int, surest), *map(int, spread)]


def _sample(found: Any, classes: Sequence[str], label: int, folder: Path) -> dict[str, Any]:
    from fitroom.data import thumbnail

    file = found.file.relative_to(folder) if found.file.is_relative_to(folder) else found.file
    try:
        image = thumbnail(found.file)
    except Exception:  # a missing thumbnail is not worth losing the results
        image = None
    return {
        "file": str(file),
        "label": classes[label],
        "top": top_classes(found.probabilities, classes),
        "thumbnail": image,
    }


def publish(network: Network, folder: Path) -> None:
    """Save the model as `model.keras`, so that plain Keras loads it and it runs on any device."""
    make_plain(network)
    write_model(folder, network.model)
