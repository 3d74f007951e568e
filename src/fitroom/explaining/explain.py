"""`fitroom.explain`: what an out-of-memory error or a crash log says, why, and what to try next."""

import codecs
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fitroom.cards.catalogue import Card
from fitroom.errors import InputError, OutOfMemoryError
from fitroom.explaining.advice import advise
from fitroom.explaining.cause import find_cause
from fitroom.explaining.explanation import Explanation
from fitroom.explaining.reader import ENOUGH_PROGRESS, LogReader
from fitroom.explaining.savings import estimate_savings

if TYPE_CHECKING:
    import keras

_HEAD_BYTES = 8192
_NOT_RECOGNISED = (
    "No message about memory that fitroom knows is in this text. That does not mean that memory was not the reason: a "
    "process that is killed leaves none."
)
_NOT_MEMORY = "This log shows another error, of a kernel or of CUDA's libraries, and none of memory:"
_PLAIN_TORCH = "The log does not mention Keras; `fitroom.fit`, `run` and `plan` are for Keras models."
_ONLY_WARNED = "The allocator warned that memory was short, and training went on: this is not a failure."
_WENT_ON = "Lines of training progress follow this message: it did not end all of the training."
_CANCELLED = (
    "The log says that the job was cancelled, as at its time limit: that it was killed says nothing about memory."
)


def explain(
    error: BaseException | str | Path | None = None,
    *,
    model: "keras.Model | None" = None,
    batch_size: int | None = None,
    gpu: str | Card | None = None,
) -> Explanation:
    """Explain an out-of-memory error: device, phase, layer and allocation, the cause, and the next settings to try.

    Args:
        error: an exception, the text of a log, or the path of one. None for the last error of this notebook or
            interpreter.
        model: the built model that failed; the settings then come with what each would save.
        batch_size: the samples of the step that failed; needed with `model`.
        gpu: the card to estimate for; None for the one that the log names, else the one in this machine, else a T4.

    Returns:
        An `Explanation`, which prints itself. Its `recognised` is False where the text says nothing about memory.

    Example:
        >>> print(explain("RuntimeError: CUDA error: out of memory").failure.kind)
        device_out_of_memory
    """
    if (model is None) != (batch_size is None):
        raise InputError(
            "`model` and `batch_size` belong together: what a setting saves depends on both.",
            hint="fitroom.explain(error, model=model, batch_size=64)",
        )
    explanation = _explain_any(error)
    if model is None or batch_size is None:
        return explanation
    return estimate_savings(explanation, model, batch_size, gpu=gpu)


def _explain_any(error: BaseException | str | Path | None) -> Explanation:
    if error is None:
        error = _last_error()
    if isinstance(error, OutOfMemoryError) and isinstance(error.explanation, Explanation):
        return error.explanation
    if isinstance(error, BaseException):
        explanation = explain_lines("".join(traceback.format_exception(error)).splitlines())
        if explanation.failure is not None:
            explanation.failure.line_number = 0
        return explanation
    if not isinstance(error, str | Path):
        raise InputError(
            f"`error` must be an exception, the text of a log or the path of one. Received: {error!r}.",
            hint="fitroom.explain() takes the last error",
        )
    if isinstance(error, Path) or _is_path(error):
        return explain_file(Path(error))
    if not error.strip():
        raise InputError("The text is empty.", hint="give the traceback or the log of the program that failed")
    return explain_lines(error.splitlines())


def _is_path(text: str) -> bool:
    """Whether a text is the path of a log: of a file that is there, or by its name."""
    if "\n" in text or len(text) > 1000:
        return False
    return Path(text).is_file() or (len(text.split()) == 1 and Path(text).suffix in (".log", ".txt", ".out", ".err"))


def _last_error() -> BaseException:
    """The error that is being handled, or else the last one that reached the user."""
    found = sys.exception() or getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if found is None:
        raise InputError(
            "There is no last error in this interpreter.",
            hint="fitroom.explain(error) with the exception, or with the text of its traceback",
        )
    return found


def explain_file(path: Path) -> Explanation:
    """Explain a log file, in bounded memory. Raises InputError for what is no text."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        # As PowerShell's `>` writes it.
        encoding = "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"
        check_text(head.decode(encoding, errors="replace").encode(), str(path))
        with path.open(encoding=encoding, errors="replace", newline="\n") as lines:
            return explain_lines(bounded_lines(lines))
    except OSError as error:
        raise InputError(
            f"{str(path)!r} cannot be read: {error.strerror or error}.", hint="give the log of the program that failed"
        ) from None


def bounded_lines(lines: Any, longest: int = 2**20) -> Iterable[str]:
    """The lines of an open file; a line without end is handed on in pieces."""
    while line := lines.readline(longest):
        yield line


def check_text(head: bytes, name: str) -> None:
    """Raise InputError where the beginning of a file is empty or is no text."""
    if not head.strip():
        raise InputError(f"{name!r} is empty.", hint="python train.py > crash.log 2>&1 writes errors into it, too")
    # UTF-16, as PowerShell's `>` writes it, has zero bytes and a mark at the start.
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"{name!r} is UTF-16 text.", hint="in PowerShell: Get-Content crash.log | fitroom explain")
    if b"\0" in head:
        raise InputError(f"{name!r} is no text.", hint="give the log of the program that failed, unpacked")


def explain_lines(lines: Iterable[str]) -> Explanation:
    """Explain a log from its lines."""
    reader = LogReader()
    reader.read(lines)
    return explain_reader(reader)


def explain_reader(reader: LogReader) -> Explanation:
    """Explain what a reader has gathered."""
    failure = reader.failure()
    if failure is None:
        note = _CANCELLED if reader.was_cancelled else _ONLY_WARNED if reader.has_warning else _NOT_RECOGNISED
        if reader.other_reason and not reader.was_cancelled:
            note = f"{_NOT_MEMORY} {reader.other_reason}"
        return Explanation(failure=None, cause=None, notes=(note,), line_count=reader.line_count)
    cause = find_cause(failure, progress_count=reader.progress_count)
    notes: tuple[str, ...] = (_WENT_ON,) if reader.went_on_count >= ENOUGH_PROGRESS else ()
    if failure.framework == "torch" and not reader.has_keras and failure.kind == "device_out_of_memory":
        notes += (_PLAIN_TORCH,)
    return Explanation(
        failure=failure,
        cause=cause,
        settings=advise(failure, cause),
        notes=notes,
        line_count=reader.line_count,
    )
