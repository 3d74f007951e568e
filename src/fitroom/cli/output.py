"""Stdout for results, stderr for everything else."""

import codecs
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

_STDOUT, _STDERR = 1, 2
_ANY_NAME = "fitroom-any-name"


def take_any_name() -> None:
    """Have stdout take names of files that are no text: as the bytes that they are, which scripts can use."""
    codecs.register_error(_ANY_NAME, _as_bytes)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_ANY_NAME)


def json_text(value: Any) -> str:
    """A value as JSON for people, in letters of any script; bytes of a name that are no text as JSON's escapes.

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


def _as_bytes(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    part = error.object[error.start : error.end]
    if all("\udc80" <= letter <= "\udcff" for letter in part):
        return part.encode("ascii", "surrogateescape"), error.end
    return part.encode("ascii", "backslashreplace"), error.end


@contextmanager
def stdout_for_results() -> Iterator[None]:
    """Send to stderr what the user's own code prints while it builds and is traced, and the programs it starts."""
    if sys.stdout is None:  # closed, as `>&-` does: there is nothing to keep clean
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
    """Say on stderr what is under way: one line that changes in a terminal, a line each in a log."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: console.print(f"{text} ...", highlight=False, soft_wrap=True)
        return
    with console.status("starting") as status:
        yield lambda text: status.update(f"{text} ...")
