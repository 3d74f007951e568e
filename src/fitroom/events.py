"""Events of a training that a user should know: shown or handed to listeners, and recorded."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

Event = dict[str, Any]
"""Its "kind" (one of `EventKind`), a "message" for people, where it happened ("epoch" and "batch" from 0), and facts of
its kind."""

OnEvent = Callable[[Event], None]

_log = logging.getLogger("fitroom")
_listeners: ContextVar[tuple[OnEvent, ...]] = ContextVar("fitroom listeners", default=())


@contextlib.contextmanager
def listening(on_event: OnEvent) -> Iterator[None]:
    """Have `on_event` called with each event of the trainings begun within the block, in place of the logger's line.

    Listeners of enclosing blocks are called too. An event may come from the thread that writes checkpoints.

    >>> with listening(lambda event: print(event["kind"])):
    ...     Events().tell(EventKind.RESUMED, "resuming at batch 3")["message"]
    resumed
    'resuming at batch 3'
    """
    token = _listeners.set((*_listeners.get(), on_event))
    try:
        yield
    finally:
        _listeners.reset(token)


ALL_SAVED = "all whole batches are saved"
"""Said by the process that writes the last checkpoint after another one died; whoever started them looks for it."""

PEER_LOST = "the same command resumes from the last checkpoint, where there is one; with fewer devices too"
"""The hint of the errors that say that another process failed; whoever started them looks for it, too."""


class EventKind:
    """The kinds of events. The logs of runs and `--json` have these texts, so that none is ever changed."""

    # Memory.
    OUT_OF_MEMORY = "out of memory"
    """A step did not fit; the same batch is repeated with a smaller micro-batch or more recomputed."""
    MEMORY_NEARLY_FULL = "memory nearly full"
    """A peak came near the limit. Told to listeners; not in the log of a run."""
    BATCH_STATISTICS = "batch statistics"
    """BatchNormalization sees micro-batches instead of whole batches; told once a training."""
    EARLIER_MODELS = "earlier_models"
    """Models of earlier calls of `fit` still take memory; told once a process."""

    STEP_MEASURED = "step measured"
    """The peak of the first steady steps, and how far the plan's estimate was from it."""

    # What the training is carried out with.
    DEVICE = "device"
    """Training runs on the CPU although the machine has a card; told once a process."""
    DEVICES = "devices"
    """Several devices train: which, by what, and the share of each."""
    PLAN = "plan"
    """The plan that was made for a budget, or what it could not take into account."""
    JIT = "jit"
    """The step is compiled whole where Keras would run it operation by operation."""
    RUN_FOLDER = "run folder"
    """What differs from the run that the folder holds, or that its file system has no locks."""

    # The way of a run.
    RESUMING = "resuming"
    """What the data cannot guarantee when this run is resumed later; told when a new run begins."""
    RESUMED = "resumed"
    """An unfinished run continues from its last checkpoint."""
    CALLBACKS = "callbacks"
    """The state of a callback that could not be restored when the run resumed."""
    INTERRUPTED = "interrupted"
    """A signal stopped the run after a whole batch."""
    FAILED = "failed"
    """An error ended the run. In its log only: whoever called gets the error itself."""
    FINISHED = "finished"
    """The run was finished before, and nothing is left to train."""

    # Files of the run folder.
    CHECKPOINT_NOT_WRITTEN = "checkpoint not written"
    """A checkpoint could not be written; training continues."""
    CHECKPOINT_DAMAGED = "checkpoint damaged"
    """The newest checkpoint cannot be read; the one before it is used."""
    CHECKPOINT_MISSING = "checkpoint missing"
    """A run that had begun or finished has not the checkpoint that it should have."""
    MODEL_DAMAGED = "model damaged"
    """The saved model of a finished run cannot be read and is made again from the last checkpoint."""
    MODEL_NOT_WRITTEN = "model not written"
    """The trained model could not be saved."""

    # The data and the loss.
    IMAGE_WENT_BAD = "picture went bad"
    """An image file that could be read when it was scanned cannot be read now; another image takes its place."""
    LOSS_NOT_FINITE = "loss not finite"
    """The loss became NaN or infinite; training continues."""


class Events:
    """Passes events to the listeners, or to stderr through the logger "fitroom", and keeps them for `History` and the
    run folder."""

    def __init__(self, write: Callable[[Event], None] | None = None) -> None:
        self.happened: list[Event] = []
        self.write = write
        self.where: dict[str, int] = {}
        """The epoch and the batch under way."""
        # Taken here, since the thread that writes checkpoints tells of them too.
        self._listeners = _listeners.get()
        self._said_once: set[str] = set()

    def tell(self, kind: str, message: str, **facts: Any) -> Event:
        """Publish one event of one of the kinds of `EventKind`, and return it as it is recorded."""
        event = {"kind": kind, "message": message, **self.where, **facts}
        if not self._listeners:
            # A warning, since Python shows those to people who never heard of logging.
            _log.warning("fitroom: %s", message)
        for on_event in self._listeners:
            with contextlib.suppress(OSError):  # a terminal that went away is no reason to stop
                on_event(event)
        self.happened.append(event)
        if self.write is not None:
            self.write(event)
        return event

    def tell_once(self, kind: str, message: str, **facts: Any) -> None:
        """Publish an event of a kind the first time only."""
        if kind not in self._said_once:
            self._said_once.add(kind)
            self.tell(kind, message, **facts)
