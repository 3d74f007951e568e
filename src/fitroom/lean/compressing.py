"""`fitroom compress`: a classifier is pruned, fine-tuned in a run of its own, and compared with itself before."""

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fitroom.activity import activity
from fitroom.classify import records
from fitroom.classify.classifier import find_model
from fitroom.classify.job import TrainJob
from fitroom.classify.options import TrainOptions
from fitroom.errors import FitroomError, InputError
from fitroom.files.durable import read_json, write_json
from fitroom.lean.child_process import run_in_child
from fitroom.lean.pruning_child import MODULE
from fitroom.runs.job import Job
from fitroom.runs.layout import COMPRESS_FILE, JOB_FILE, MODEL_FILE, PRUNED_FILE, RESULTS_FILE, RUN_FILE
from fitroom.runs.place import check_place
from fitroom.units import parse_bytes
from fitroom.watching.listener import Listener


@dataclass(frozen=True, kw_only=True)
class State:
    """A classifier before or after."""

    run_dir: str
    accuracy: float | None
    parameters: int
    size_bytes: int
    latency_seconds: float
    """For one image on this machine's CPU, by Keras."""


@dataclass(frozen=True, kw_only=True)
class Compression:
    """What pruning and fine-tuning made of a classifier."""

    sparsity: float
    split: str
    """The images that the accuracies are measured on."""

    images: int | None
    """How many they are; None where the results do not tell."""

    before: State
    after: State

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class CompressJob:
    """Carries out `fitroom compress`, from where an earlier call was stopped."""

    run: Path
    sparsity: float | None
    target_size: str | None
    run_dir: Path
    changes: dict[str, Any]
    """Options of `fitroom train` that differ from those of the run."""

    command: list[str]

    def read_job(self) -> Job:
        """The run to compress. Raises InputError for what is no finished run of `fitroom train`."""
        if (self.sparsity is None) == (self.target_size is None):
            received = "neither" if self.sparsity is None else "both"
            raise InputError(
                f"Give either --sparsity or --target-size. Received: {received}.", hint="for instance --sparsity 0.5"
            )
        if self.sparsity is not None and not 0 < self.sparsity < 1:
            raise InputError(f"--sparsity must be above 0 and below 1. Received: {self.sparsity}.", hint="such as 0.5")
        if self.target_size is not None:
            parse_bytes(self.target_size)
        _, job = find_model(self.run)
        if not job.options or not self.run.is_dir():
            raise InputError(
                f"{self.run} is no run folder of `fitroom train`. Expected: one with {JOB_FILE} and {MODEL_FILE}.",
                hint="compress needs the images that the model was trained on; `fitroom.lean.prune` prunes any model",
            )
        check_place(self.run_dir)
        if not self._notes.exists() and ((self.run_dir / JOB_FILE).exists() or (self.run_dir / RUN_FILE).exists()):
            raise InputError(
                f"The folder {self.run_dir} holds a run that is no compression of {self.run}.",
                hint="give a new folder with --run-dir",
            )
        if not Path(job.options["folder"]).exists():
            raise InputError(
                f"There is no folder {job.options['folder']!r}, with the images that {self.run} was trained on.",
                hint="run the command where `fitroom train` was run",
            )
        return job

    @property
    def _notes(self) -> Path:
        """What the pruned model in the run folder was asked to be."""
        return self.run_dir / f".{PRUNED_FILE}.json"

    def carry_out(self, view: Listener) -> Compression:
        """Prune, fine-tune and compare."""
        job = self.read_job()
        backend = job.backend or "tensorflow"
        sparsity = self._prune(job, backend, view)
        options = TrainOptions(**self._options(job))
        if not records.is_finished(self.run_dir):
            summary = TrainJob(options=options, command=self.command).run(view)
            view.ended(summary | {"run_dir": None, "report": None})
        view.said("measuring both models")
        before, after = self._describe(self.run, job, backend), self._describe(self.run_dir, job, backend)
        results = read_json(self.run_dir / RESULTS_FILE)
        found = Compression(
            sparsity=sparsity,
            split=str(results.get("split")),
            images=sum(sum(row) for row in results.get("confusion") or ()) or None,
            before=before,
            after=after,
        )
        write_json(self.run_dir / COMPRESS_FILE, found.to_dict())
        return found

    def _options(self, job: Job) -> dict[str, Any]:
        epochs = max(1, int(job.options.get("epochs", 10)) // 2)
        fixed = {
            "model": str(self.run_dir / PRUNED_FILE),
            "image_size": job.image_size,
            "weights": None,
            "freeze": False,
            "unfreeze_after": None,
            "run_dir": str(self.run_dir),
            "backend": job.backend,
        }
        return (
            job.options
            | {"epochs": epochs, "learning_rate": None}
            | {n: v for n, v in self.changes.items() if v is not None}
            | fixed
        )

    def _prune(self, job: Job, backend: str, view: Listener) -> float:
        """Write the pruned model into the run folder, unless an earlier call has. Returns the sparsity."""
        place, notes = self.run_dir / PRUNED_FILE, self._notes
        asked = {"sparsity": self.sparsity, "target_size": self.target_size, "run": str(self.run)}
        if place.exists() and notes.exists():
            before = read_json(notes)
            if before["asked"] != asked:
                raise InputError(
                    f"The folder {self.run_dir} holds another compression: {before['asked']}. Received: {asked}.",
                    hint="give another --run-dir",
                )
            return float(before["sparsity"])
        view.said(f"pruning {self.run / MODEL_FILE}")
        question = {
            "task": "prune",
            "model": str(self.run / MODEL_FILE),
            "unsafe": bool(self.changes.get("unsafe")),
            "sparsity": self.sparsity,
            "target_bytes": parse_bytes(self.target_size) if self.target_size else None,
            "to": str(place),
        }
        self.run_dir.mkdir(parents=True, exist_ok=True)
        try:
            with activity("pruning"):
                answer = run_in_child(MODULE, question, backend=backend, what="Pruning")
        except FitroomError:
            with suppress(OSError):  # not empty: it is an earlier call's
                self.run_dir.rmdir()
            raise
        write_json(notes, {"asked": asked} | answer)
        view.said(
            f"pruned by {100 * answer['sparsity']:.0f} % of the channels: {answer['parameters']:,} parameters are left"
        )
        return float(answer["sparsity"])

    def _describe(self, run: Path, job: Job, backend: str) -> State:
        model = run / MODEL_FILE
        question = {"task": "measure", "model": str(model), "unsafe": bool(self.changes.get("unsafe"))}
        with activity(f"measuring {model}"):
            answer = run_in_child(MODULE, question, backend=backend, what="Measuring")
        try:
            accuracy = float(read_json(run / RESULTS_FILE)["metrics"]["accuracy"])
        except (OSError, ValueError, KeyError, TypeError):
            accuracy = None
        return State(run_dir=str(run), accuracy=accuracy, size_bytes=model.stat().st_size, **answer)
