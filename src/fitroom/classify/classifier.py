"""A trained classifier, from a run folder or a `.keras` file."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitroom.activity import begin_step
from fitroom.backends.choose import choose_backend, installed_backends
from fitroom.classify import records
from fitroom.classify.options import OWN_WEIGHTS, resume_command
from fitroom.data.files import files_below
from fitroom.errors import InputError, ModelError
from fitroom.report.shared.words import format_backend
from fitroom.runs.job import Job
from fitroom.runs.layout import JOB_FILE, MODEL_FILE


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A model with the names of its classes."""

    model: Any
    classes: Sequence[str]
    image_size: int
    resize: str
    gives_probabilities: bool

    def predict(self, files: Sequence[Path], *, top: int = 5, batch_size: int = 32) -> list[dict[str, Any]]:
        """The most likely classes of each file with their probabilities, or the reason why it could not be read."""
        from fitroom.classify.evaluation import top_classes
        from fitroom.classify.prediction import Predictor

        begin_step("predicting")
        predictor = Predictor(
            self.model,
            image_size=self.image_size,
            resize=self.resize,
            batch_size=min(batch_size, len(files)),
            gives_probabilities=self.gives_probabilities,
        )
        return [
            {
                "file": str(one.file),
                "top": None if one.reason else top_classes(one.probabilities, self.classes, top),
                "reason": one.reason,
            }
            for one in predictor.files(files)
        ]


def run_backend(place: Path) -> str | None:
    """The backend that a classifier was trained on, if it is known and installed here."""
    _, job = find_model(place)
    return job.backend if job.backend in installed_backends() else None


def load_classifier(place: Path, *, backend: str | None = None, unsafe: bool = False) -> Classifier:
    """Load the classifier of a run folder or a `.keras` file. Without a run its classes are numbered."""
    file, job = find_model(place)
    machine_backend = backend or (None if os.environ.get("KERAS_BACKEND") else run_backend(place))

    from fitroom.classify.machine import start_machine

    begin_step(f"starting {format_backend(choose_backend(machine_backend))}")
    start_machine(machine_backend, budget=None, gpu=None, say=lambda text: None)
    begin_step(f"reading {file}")
    from fitroom.classify.compiling import make_plain
    from fitroom.classify.network import Network
    from fitroom.keras_model.loading.source import ModelSource, load_model

    model = load_model(ModelSource(text=str(file), unsafe=unsafe, values=True))
    network = Network(model=model, weights=OWN_WEIGHTS, is_pretrained=True)
    ends = (getattr(model, name, None) or [] for name in ("inputs", "outputs"))
    takes, gives = ([(None, *each.shape[1:]) for each in tensors] for tensors in ends)
    size = job.image_size or (takes[0][1] if takes and len(takes[0]) == 4 else None)
    if (
        takes not in ([(None, size, size, 3)], [(None, None, None, 3)])
        or not size
        or not _is_one_number_per_class(gives)
    ):
        raise ModelError(
            f"{file} takes {_list_shapes(takes)} and gives {_list_shapes(gives)}. "
            "Expected: images (None, size, size, 3) in, and one number for each of at least two classes out.",
            hint="give an image classifier with a fixed image size",
        )
    outputs = gives[0]
    classes = job.classes or [f"class {number}" for number in range(outputs[1] or 0)]
    if len(classes) != outputs[1]:
        raise ModelError(
            f"{file} has {outputs[1]} classes, and the {JOB_FILE} beside it names {len(classes)}.",
            hint="they are from different runs: move the model to another folder to use it with numbered classes",
        )
    return Classifier(
        model=make_plain(network),
        classes=classes,
        image_size=size,
        resize=job.options.get("resize", "crop"),
        gives_probabilities=network.gives_probabilities,
    )


def _list_shapes(shapes: Sequence[tuple[int | None, ...]]) -> str:
    return ", ".join(map(str, shapes)) or "unknown shapes"


def _is_one_number_per_class(gives: Sequence[tuple[int | None, ...]]) -> bool:
    return len(gives) == 1 and len(gives[0]) == 2 and (gives[0][1] or 0) > 1


def list_image_files(places: Sequence[Path]) -> list[Path]:
    """All files that are given, and all files below folders, in order. They are not checked to be images."""
    found: list[Path] = []
    for place in places:
        if os.path.isdir(place):
            found += sorted(files_below(place))
        elif os.path.lexists(place):
            found.append(place)
        else:
            raise InputError(
                f"There is no file {str(place)!r}.", hint="check the path; relative paths start at the current folder"
            )
    if not found:
        raise InputError(f"There are no files in {', '.join(map(str, places))}.")
    return found


def find_model(place: Path) -> tuple[Path, Job]:
    """The `.keras` file of a run folder, or the file itself, and its job; an empty one for any other file."""
    if not os.path.exists(place):
        raise InputError(f"There is no file or folder {str(place)!r}.", hint="give a run folder or a .keras file")
    if not place.is_dir():
        return place, (records.read_job(place.parent) if place.name == MODEL_FILE else None) or Job()
    job, file = records.read_job(place), place / MODEL_FILE
    if not file.is_file():
        if job is not None:
            raise InputError(
                f"The run in {place} is not finished: it has no model yet.",
                hint=f"`{resume_command(place, job.options)}` resumes it",
            )
        raise InputError(f"There is no run in {place}.", hint="give a run folder or a .keras file")
    return file, job or Job()
