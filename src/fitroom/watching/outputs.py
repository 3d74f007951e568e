"""Where the readings of a watch go: JSON lines and TensorBoard as they come, a figure and a trace at the end."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from fitroom.display import save_watch
from fitroom.errors import FitroomError
from fitroom.files.durable import write_json
from fitroom.files.json_lines import append_line, finite
from fitroom.watching.options import WatchOptions
from fitroom.watching.summary import Reading, WatchSummary
from fitroom.watching.tensorboard import TensorBoardLog

_SNAPSHOT_ENTRIES = 100_000


class Outputs:
    """The files of one watch."""

    def __init__(self, options: WatchOptions) -> None:
        self._options = options
        self._tensorboard = TensorBoardLog(options.tensorboard) if options.tensorboard else None
        if options.jsonl:
            options.jsonl.unlink(missing_ok=True)

    def begin(self) -> None:
        """A training begins."""
        if self._options.snapshot:
            import torch

            torch.cuda.memory._record_memory_history(max_entries=_SNAPSHOT_ENTRIES)

    def write(self, reading: Reading) -> None:
        """Write a reading. A full disk does not stop training."""
        if self._options.jsonl:
            append_line(self._options.jsonl, reading)
        if self._tensorboard:
            with contextlib.suppress(OSError):
                self._tensorboard.reading(finite(reading))

    def end(
        self, readings: Sequence[Reading], summary: WatchSummary, make_trace: Callable[[], dict[str, Any]]
    ) -> list[str]:
        """Write the files of the end. Returns what could not be written, in sentences."""
        problems: list[str] = []
        if self._tensorboard:
            self._tensorboard.close()
        if self._options.snapshot:
            self._write_snapshot(problems)
        if self._options.trace:
            try:
                write_json(self._options.trace, finite(make_trace()))
            except OSError as error:
                problems.append(f"the trace could not be written: {error}.")
        if self._options.plot:
            try:
                save_watch(summary, readings, self._options.plot)
            except FitroomError as error:
                problems.append(f"the plot could not be written: {error}")
        return problems

    def _write_snapshot(self, problems: list[str]) -> None:
        import torch

        memory: Any = torch.cuda.memory
        try:
            memory._dump_snapshot(str(self._options.snapshot))
        except (OSError, RuntimeError) as error:
            problems.append(f"PyTorch's snapshot could not be written: {error}.")
        finally:
            memory._record_memory_history(enabled=None)
