"""One training of a classifier, from a folder of pictures to a run folder with model, results and report."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitroom.classify import records
from fitroom.classify.options import TrainOptions
from fitroom.classify.weights import check_there
from fitroom.errors import InputError
from fitroom.train.run.place import RUN_FILE, check_place, check_writable
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
        """Train to the end. What came of it, for the view's `ended`."""
        started = time.monotonic()
        kept = self._kept()

        from fitroom.classify.preparation import prepare

        prepared = prepare(self.options, self.command, kept, view)
        view.began(prepared.job)
        report = None
        try:
            from fitroom.classify.evaluation import evaluate_and_publish
            from fitroom.classify.training import train

            best_epoch = train(prepared, view)
            results = evaluate_and_publish(prepared, view)
        finally:
            records.write_skipped(self.folder, prepared.pictures.skipped)  # files may go bad while they are trained on
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
            "model": str(self.folder / records.MODEL_FILE),
            "report": report,
        }

    def _kept(self) -> dict[str, Any] | None:
        """What was begun in the folder; refuses one that holds something else."""
        if not Path(self.options.folder).exists():
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
        check_writable(self.folder)
        return kept

    def _report(self, view: Listener) -> str | None:
        """`report.html`, also of a run that was stopped. That it cannot be written is no reason to lose the rest."""
        if not (self.folder / RUN_FILE).exists():  # stopped before `fit` began it
            return None
        from fitroom.report.run_page import write_report

        try:
            return str(write_report(self.folder))
        except Exception as error:
            view.said(f"the report could not be written: {error}")
            return None
