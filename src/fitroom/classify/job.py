"""One run of `fitroom train`, from a folder of images to a run folder with model, results and report."""

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitroom.classify import records
from fitroom.classify.network import check_weights_file
from fitroom.classify.options import TrainOptions
from fitroom.errors import FitroomError, InputError, message_of
from fitroom.files.durable import read_json, write_json
from fitroom.runs.job import Job
from fitroom.runs.layout import JOB_FILE, LOCK_FILE, MODEL_FILE, REPORT_FILE, RUN_FILE, TIMES_FILE
from fitroom.runs.lock import FolderLock
from fitroom.runs.place import check_place, check_writable, not_writable
from fitroom.watching.listener import Listener


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """Carries out `fitroom train`: starts a run, or resumes the one in the folder."""

    options: TrainOptions
    command: Sequence[str]
    """The command as it was typed, for the report."""

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.options.run_dir)

    def run(self, view: Listener) -> dict[str, Any]:
        """Train to the end. Returns a summary, for the view's `ended`.

        The folder is locked until all is written: another process that wants to train there is refused.
        """
        started = time.monotonic()
        previous = self._read_previous()
        with self._locked():
            return self._run(previous, started, view)

    def _run(self, previous: Job | None, started: float, view: Listener) -> dict[str, Any]:
        from fitroom.classify.preparation import prepare

        with record_time(self.folder, "planning"):
            prepared = prepare(self.options, self.command, previous, view)
        view.began(prepared.job.values)
        report = None
        try:
            from fitroom.classify.evaluation import evaluate_and_publish
            from fitroom.classify.training import train

            best_epoch = train(prepared, view)
            with record_time(self.folder, "evaluating"):
                results = evaluate_and_publish(prepared, view)
        finally:
            try:  # files may become unreadable during training
                records.write_skipped(self.folder, prepared.images.skipped)
            except FitroomError as error:
                view.said(f"warning: {error.message}")
            report = self._write_report(view)
        return {
            "state": "finished",
            "resumed": previous is not None,
            "seconds": time.monotonic() - started,
            "epochs": records.count_epochs(self.folder),
            "best_epoch": best_epoch,
            "split": results["split"],
            "metrics": results["metrics"],
            "peak_bytes": records.read_peak_bytes(self.folder),
            "run_dir": str(self.folder),
            "model": str(self.folder / MODEL_FILE),
            "report": report,
        }

    def _read_previous(self) -> Job | None:
        """What `job.json` says of a run to resume, or None. Refuses a folder that holds something else."""
        if not os.path.exists(self.options.folder):
            raise InputError(
                f"There is no folder {self.options.folder!r}.",
                hint="give a folder with one folder of images per class; relative paths start at the current folder",
            )
        check_place(self.folder)
        previous = records.read_job(self.folder)
        if previous is None:
            check_weights_file(self.options.weights)
        else:
            records.check_same_training(self.folder, previous, self.options.to_dict())
            records.check_resumable(self.folder, previous)
        check_writable(self.folder)
        return previous

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's lock, and lend it to `fit`. A run that is refused before it is written leaves no folder."""
        path = self.folder / LOCK_FILE
        made = [folder for folder in (self.folder, *self.folder.parents) if not folder.exists()]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FolderLock(path)
        except OSError as error:
            raise not_writable(self.folder, error) from error
        try:
            with lock.lend(path):
                yield
        finally:
            if made and not (self.folder / JOB_FILE).exists():
                with suppress(OSError):
                    path.unlink()
            lock.release()
            for folder in made:
                with suppress(OSError):  # not empty
                    folder.rmdir()

    def _write_report(self, view: Listener) -> str | None:
        """Write `report.html`, also of a run that was stopped. A failure is reported, and the rest of the run kept."""
        if not (self.folder / RUN_FILE).exists():  # stopped before `fit` began
            return None
        from fitroom.report.run.report import write_report

        try:
            return str(write_report(self.folder))
        except Exception as error:
            view.said(f"the report could not be written: {message_of(error)}")
            return None


def ensure_report(folder: Path) -> Path:
    """The path of a run's report, which is written if a kill or a full disk left none."""
    from fitroom.report.run.report import is_whole, write_report

    path = folder / REPORT_FILE
    return path if is_whole(path) else write_report(folder)


@contextlib.contextmanager
def record_time(folder: Path, name: str) -> Iterator[None]:
    """Add the time of the block to what the run has spent on `name`, in `times.json`; nothing if the block raises."""
    started = time.monotonic()
    yield
    with contextlib.suppress(OSError):  # times are for people: not worth losing a run
        before = _read_times(folder)
        write_json(folder / TIMES_FILE, before | {name: round(before.get(name, 0.0) + time.monotonic() - started, 3)})


def _read_times(folder: Path) -> dict[str, float]:
    try:
        return {str(name): float(seconds) for name, seconds in read_json(folder / TIMES_FILE).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
