"""Callbacks of Keras whose state is more than their attributes."""

import os
import time
from collections.abc import Mapping
from typing import Any

from fitroom.train.run.callback_state import Attributes, Captured


class CsvFile(Attributes):
    """Keras's CSVLogger: its file is its state. Rows of epochs that will be done again go."""

    skipped = Attributes.skipped | {"append", "append_header", "keys"}

    def continue_files(self, facts: Mapping[str, Any]) -> None:
        """Append to the file, from where it ended at the checkpoint."""
        self.callback.append = True
        path, size = self.callback.filename, facts["file_bytes"]
        if os.path.isfile(path) and os.path.getsize(path) > size:
            os.truncate(path, size)

    def capture(self) -> Captured:
        """How long the file is."""
        facts, arrays = super().capture()
        path = self.callback.filename
        return facts | {"file_bytes": os.path.getsize(path) if os.path.isfile(path) else 0}, arrays


class TensorBoardSteps(Attributes):
    """Keras's TensorBoard: steps go on counting; a trace that was running is not, in a new process."""

    skipped = Attributes.skipped | {
        "_is_tracing",
        "_profiler_started",
        "_batch_start_time",
        "_epoch_start_time",
        "_previous_epoch_iterations",
        "_should_write_train_graph",
    }

    def capture(self) -> Captured:
        """The counters, and the epoch so far where steps per second are written."""
        facts, arrays = super().capture()
        if hasattr(self.callback, "_epoch_start_time"):
            facts["epoch"] = {
                "seconds": time.time() - self.callback._epoch_start_time,
                "iterations": float(self.callback._previous_epoch_iterations),
            }
        return facts, arrays

    def restore(self, facts: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """The same, with the clock put back by the time already spent on the epoch."""
        super().restore(facts, arrays)
        if "epoch" in facts:
            self.callback._epoch_start_time = time.time() - facts["epoch"]["seconds"]
            self.callback._previous_epoch_iterations = facts["epoch"]["iterations"]
