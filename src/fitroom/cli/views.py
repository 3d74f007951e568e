"""The view that suits where a command runs."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fitroom.watch.listener import Listener

_STDERR = 2


@contextmanager
def open_view(*, as_json: bool) -> Iterator[Listener]:
    """JSON lines on stdout; or on stderr a live view in a terminal, and plain lines in a log.

    Views write to a handle of their own: stderr itself is turned away while a framework starts.
    """
    from fitroom.report.progress.lines import JsonView, LineView

    if as_json:
        with JsonView() as view:
            yield view
        return
    with os.fdopen(os.dup(_STDERR), "w", encoding=sys.stderr.encoding, errors="backslashreplace", buffering=1) as own:
        if not own.isatty():
            with LineView(own) as lines:
                yield lines
            return
        from rich.console import Console

        from fitroom.report.progress.live import LiveView

        with LiveView(Console(file=own)) as live:
            yield live
