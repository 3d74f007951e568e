"""The interface of what follows a training: a view in a terminal, a log for TensorBoard."""

from typing import Any, Protocol


class Listener(Protocol):
    """Is called in this order: `began`, then readings, ends of epochs and events, then `ended`.

    All calls come from the thread that trains, except that an event may come from the one that writes checkpoints.
    """

    def began(self, job: dict[str, Any]) -> None:
        """Training begins; `job` is what `job.json` in the run folder holds."""

    def reading(self, reading: dict[str, Any]) -> None:
        """A reading as in `readings.jsonl`, with "epochs", "batches" (in an epoch) and "pictures_per_batch"."""

    def epoch_ended(self, epoch: int, logs: dict[str, Any]) -> None:
        """An epoch, counted from 0, is over, validation and all; the reading of its end came just before."""

    def event(self, event: dict[str, Any]) -> None:
        """Something happened that a user should know: "kind", "message" and facts."""

    def said(self, text: str) -> None:
        """A line for people: what is being done before training begins and after it."""

    def ended(self, summary: dict[str, Any]) -> None:
        """Training is over. What is known of "state", "resumed", "seconds" (since it resumed), "epochs", "best_epoch"
        (from 0), "split", "metrics", "peak_bytes", "run_dir", "report"."""
