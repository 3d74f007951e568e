"""What a command writes where: results to stdout; backend, progress and views to stderr."""

import codecs
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

import click

from fitroom.activity import watching
from fitroom.backends.choose import BackendChoice, settle_backend
from fitroom.report.shared.words import format_backend
from fitroom.watching.listener import Listener

_STDOUT, _STDERR = 1, 2
_ANY_NAME = "fitroom-any-name"


def accept_any_name() -> None:
    """Let stdout write file names that are not valid text, as their original bytes, which scripts can use."""
    codecs.register_error(_ANY_NAME, _encode_bytes)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_ANY_NAME)


def json_text(value: Any) -> str:
    """A value as indented JSON, with non-ASCII letters as they are; bytes that are not text are escaped.

    >>> print(json_text({"file": "цветок"}))
    {
      "file": "цветок"
    }
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=2)
    return text


def _encode_bytes(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    part = error.object[error.start : error.end]
    if all("\udc80" <= letter <= "\udcff" for letter in part):
        return part.encode("ascii", "surrogateescape"), error.end
    return part.encode("ascii", "backslashreplace"), error.end


@contextmanager
def stdout_for_results() -> Iterator[None]:
    """Redirect to stderr what the user's code, and programs that it starts, print while a model is built and traced."""
    if sys.stdout is None:  # closed by `>&-`
        yield
        return
    sys.stdout.flush()
    kept = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, _STDOUT)
        os.close(kept)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show on stderr what is being done, and for how long: one live line in a terminal, a line every 3 s in a log.

    Yields a function to call with each step of the work; what is told by `fitroom.activity` within the block is shown
    as well.
    """
    from fitroom.report.progress.work import WorkLine, WorkLines

    with _own_stderr() as own:
        if own.isatty():
            from rich.console import Console

            view: WorkLine | WorkLines = WorkLine(Console(file=own))
        else:
            view = WorkLines(own)
        with view, watching(view.activities):
            yield view.activities.begin_step


@contextmanager
def _own_stderr() -> Iterator[TextIO]:
    """A duplicate of stderr for a view: stderr itself is redirected while a framework starts."""
    if sys.stderr is None:  # closed by `2>&-`
        with open(os.devnull, "w") as nowhere:
            yield nowhere
        return
    sys.stderr.flush()
    with os.fdopen(os.dup(_STDERR), "w", encoding=sys.stderr.encoding, errors="backslashreplace", buffering=1) as own:
        yield own


@contextmanager
def open_view(*, as_json: bool) -> Iterator[Listener]:
    """The view of a training: JSON lines on stdout; or on stderr, live in a terminal and plain lines in a log."""
    from fitroom.report.progress.lines import JsonView, LineView

    if as_json:
        with JsonView() as view:
            yield view
        return
    with _own_stderr() as own:
        if not own.isatty():
            with LineView(own) as lines, watching(lines.activities):
                yield lines
            return
        from rich.console import Console

        from fitroom.report.progress.live import LiveView

        with LiveView(Console(file=own)) as live, watching(live.activities):
            yield live


def choose_backend_and_say(flag: str | None, *, why: str = "--backend", also: tuple[str, ...] = ()) -> str:
    """Choose the backend before Keras is imported, and print which it is. Returns its name.

    `flag` is the backend asked for, `why` where it was asked for, `also` further values that the flag may have.
    """
    choice = settle_backend(flag, why=why, also=also)
    say_backend(choice)
    return choice.name


def say_backend(choice: BackendChoice) -> None:
    """Print the line about the backend to stderr."""
    click.echo(f"backend: {backend_words(choice)}", err=True)


def backend_words(choice: BackendChoice) -> str:
    """A backend, why it was chosen, and what that overrides.

    >>> backend_words(BackendChoice(name="jax", why="--backend", overridden="KERAS_BACKEND=torch"))
    'JAX (--backend, which overrides KERAS_BACKEND=torch)'
    """
    overrides = f", which overrides {choice.overridden}" if choice.overridden else ""
    return f"{format_backend(choice.name)} ({choice.why}{overrides})"
