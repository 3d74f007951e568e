"""One training of a classifier, from a folder of pictures to a run folder with model, results and report."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitroom.classify import records
from fitroom.classify.options import TrainOptions
from fitroom.classify.times import timed
from fitroom.classify.weights import check_there
from fitroom.errors import FitroomError, InputError, message_of
from fitroom.runs.layout import JOB_FILE, LOCK_FILE, MODEL_FILE, REPORT_FILE, RUN_FILE
from fitroom.runs.lock import FolderLock
from fitroom.runs.place import check_place, check_writable, not_writable
from fitroom.watch.listener import Listener


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """Carries out what `fitroom train` was asked for, and goes on with it where it was begun before."""

    options: TrainOptions
    command: Sequence[str]
    """As it was typed, for the report."""

    @property
    def folder(self) -> Path:
        """Where the run is."""
        return Path(self.options.run_dir)

    def run(self, view: Listener) -> dict[str, Any]:
        """Train to the end. What came of it, for the view's `ended`.

        The folder is this process's own until all is written: another one that trains there is refused.
        """
        started = time.monotonic()
        kept = self._kept()
        with self._locked():
            return self._run(kept, started, view)

    def _run(self, kept: dict[str, Any] | None, started: float, view: Listener) -> dict[str, Any]:
        from fitroom.classify.preparation import prepare

        with timed(self.folder, "planning"):
            prepared = prepare(self.options, self.command, kept, view)
        view.began(prepared.job)
        report = None
        try:
            from fitroom.classify.evaluation import evaluate_and_publish
            from fitroom.classify.training import train

            best_epoch = train(prepared, view)
            with timed(self.folder, "evaluating"):
                results = evaluate_and_publish(prepared, view)
        finally:
            try:  # files may go bad while they are trained on
                records.write_skipped(self.folder, prepared.pictures.skipped)
            except FitroomError as error:
                view.said(f"warning: {error.message}")
            report = self._report(view)
        return {
            "state": "finished",
            "resumed": kept is not None,
            "seconds": time.monotonic() - started,
            "epochs": records.epochs_done(self.folder),
            "best_epoch": best_epoch,
            "split": results["split"],
            "metrics": results["metrics"],
            "peak_bytes": records.peak_bytes(self.folder),
            "run_dir": str(self.folder),
            "model": str(self.folder / MODEL_FILE),
            "report": report,
        }

    def _kept(self) -> dict[str, Any] | None:
        """What was begun in the folder; refuses one that holds something else."""
        if not os.path.exists(self.options.folder):
            raise InputError(
                f"There is no folder {self.options.folder!r}.",
                hint="give the folder that holds a folder of pictures per class; it is read from the current folder",
            )
        check_place(self.folder)
        kept = records.read_job(self.folder)
        if kept is None:
            check_there(self.options.weights)
        else:
            records.check_same(self.folder, kept, self.options.to_dict())
            records.check_resumable(self.folder, kept)
        check_writable(self.folder)
        return kept

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's lock, and lend it to `fit`. What is refused before the run is written leaves no folder."""
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
                with suppress(OSError):  # it holds a run, or something of another's
                    folder.rmdir()

    def _report(self, view: Listener) -> str | None:
        """`report.html`, also of a run that was stopped. That it cannot be written is no reason to lose the rest."""
        if not (self.folder / RUN_FILE).exists():  # stopped before `fit` began it
            return None
        from fitroom.report.run.report import write_report

        try:
            return str(write_report(self.folder))
        except Exception as error:
            view.said(f"the report could not be written: {message_of(error)}")
            return None


def ensure_report(folder: Path) -> Path:
    """The report of a run, written where a kill or a full disk left none."""
    from fitroom.report.run.report import is_whole, write_report

    path = folder / REPORT_FILE
    return path if is_whole(path) else write_report(folder)
