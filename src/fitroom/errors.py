"""Every error fitroom raises on purpose.

    FitroomError
    ├── InputError               what was given cannot work
    │   ├── UnknownNameError     a name that is not known, with the nearest ones
    │   ├── ModelError           a model that cannot be loaded, built or traced
    │   └── NothingFitsError     no recipe brings a training step under the budget
    ├── MissingExtraError        an optional package is not installed
    ├── BackendError             the chosen backend cannot do this
    ├── OutOfMemoryError         training does not fit, however small the micro-batch
    ├── HostMemoryError          the host has no memory for the next batch
    ├── NoRoomError              a step needs more memory than is free, found before it began
    ├── PeerError                another process of the same training failed or is gone
    ├── StateLostError           a step failed and the model could not be rolled back
    └── CompilerError            the XLA compiler refused, crashed or was killed
    RunInterrupted               Ctrl-C or SIGTERM stopped a run, which can be resumed; a SystemExit

Each says what happened and what was received in `message`; `hint` is the next thing to try. Both are in the text of the
error, so that a plain traceback and a notebook show them:

    try:
        fitroom.estimate(model, batch_size=64, gpu="RTX 3600")
    except fitroom.FitroomError as error:
        print(error)
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal


class FitroomError(Exception):
    """Base of all errors raised on purpose. `hint` is the next thing to try, or None."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return _with_hint(self.message, self.hint)


class InputError(FitroomError, ValueError):
    """What was given cannot work. Where Keras would raise a ValueError, whoever catches that catches this."""


class UnknownNameError(InputError):
    """A name that is not known. Its hint carries the nearest known names."""

    def __init__(self, what: str, received: str, known: Iterable[str], *, more: str = "") -> None:
        self.suggestions = nearest_names(received, known)
        options = " or ".join(repr(name) for name in self.suggestions)
        hint = " ".join(part for part in (f"did you mean {options}?" if options else "", more) if part)
        super().__init__(f"Unknown {what}. Received: {received!r}.", hint=hint or None)


class ModelError(InputError):
    """A model that cannot be loaded, built or traced."""


class NothingFitsError(InputError):
    """No recipe brings a training step under the budget."""

    def __init__(self, message: str, *, smallest_bytes: int, recipe: Any = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.smallest_bytes = smallest_bytes
        """The smallest budget that is known to be enough."""

        self.recipe = recipe
        """The `Recipe` that fits into it, or None."""


class MissingExtraError(FitroomError):
    """An optional package is not installed. The message carries the exact `pip install`."""

    def __init__(self, purpose: str, *, package: str, extra: str) -> None:
        super().__init__(
            f"{purpose} needs {package}, which is not installed.",
            hint=f"pip install 'fitroom[{extra}]'",
        )


class BackendError(FitroomError):
    """The chosen backend cannot do this."""


class OutOfMemoryError(FitroomError):
    """Training does not fit, however small the micro-batch. The model is as before the batch that failed."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        fresh_start: "FreshStart | None" = None,
        explanation: Any = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.fresh_start = fresh_start
        """How a fresh process may resume, or None where that would not help."""

        self.explanation = explanation
        """The `Explanation` of the framework's error, or None; `fitroom.explain(error)` returns it."""

    def __str__(self) -> str:
        explained = f"{self.message}\n\n{self.explanation}\n" if self.explanation is not None else self.message
        return _with_hint(explained, self.hint)


@dataclass(frozen=True, kw_only=True)
class FreshStart:
    """What a fresh process is to start with, where the one that ran out of memory cannot release all that it holds."""

    micro_batch: int
    """Of training, or of validation where memory ran out there."""

    during: Literal["training", "validation"]
    is_known_to_fit: bool
    """Whether a micro-batch of this size succeeded in the process that failed later."""

    is_kept: bool = False
    """Whether the run folder records it: the next process that resumes the run then starts so by itself."""


class HostMemoryError(FitroomError):
    """The host's memory, not the device's, ran out while a batch was being made."""


class NoRoomError(FitroomError):
    """A step needs more memory than is free, found before it began. It is handled like any other out-of-memory."""


class PeerError(FitroomError):
    """Another process of the same training failed, is gone, or did not answer within the time limit."""


class StateLostError(FitroomError):
    """A step failed after its inputs had been donated to the device, so that the model could not be rolled back."""


class NeedsProcesses(BaseException):
    """A script chose PyTorch after it was started in one process, and several devices were asked for."""


class CompilerError(FitroomError):
    """The XLA compiler refused, crashed or was killed."""


class RunInterrupted(SystemExit):
    """A signal stopped a run after a whole batch. Uncaught, Python exits with 130 (Ctrl-C) or 143 (SIGTERM).

    >>> RunInterrupted("Stopped.", signal_number=15, hint="run the same script again").code
    143
    """

    def __init__(self, message: str, *, signal_number: int, hint: str | None = None) -> None:
        super().__init__(128 + signal_number)
        self.message = message
        self.signal_number = signal_number
        self.hint = hint

    def __str__(self) -> str:
        return _with_hint(self.message, self.hint)


def _with_hint(message: str, hint: str | None) -> str:
    """In the text, not in `__notes__`: notebooks with an older IPython, such as Colab's, do not show those."""
    return f"{message}\nhint: {hint}" if hint else message


def message_of(error: BaseException) -> str:
    """The message of an error without its hint, to be used within another message."""
    return error.message if isinstance(error, FitroomError) else str(error)


def nearest_names(received: str, known: Iterable[str], *, count: int = 3) -> list[str]:
    """The known names most like `received`, best first, compared without case.

    >>> nearest_names("xcpetion", ["Xception", "VGG16"])
    ['Xception']
    """
    spelled = {name.lower(): name for name in known}
    return [spelled[match] for match in difflib.get_close_matches(received.lower(), spelled, count, 0.5)]
