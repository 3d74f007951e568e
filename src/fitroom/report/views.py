"""Which view of a training: live in a terminal, lines in a log, JSON for programs."""

from rich.console import Console

from fitroom.report.lines import JsonView, LineView
from fitroom.report.live import LiveView


def view_for(*, as_json: bool = False) -> LiveView | LineView | JsonView:
    """JSON goes to stdout; what is for people goes to stderr, and is live where that is a terminal.

    >>> with view_for() as view, listening(view.event):  # doctest: +SKIP
    ...     view.began(job)
    ...     fitroom.fit(model, x, y, callbacks=[Recorder(run_dir, listeners=[view], ...)], verbose=0)
    """
    if as_json:
        return JsonView()
    console = Console(stderr=True)
    return LiveView(console) if console.is_terminal and not console.is_dumb_terminal else LineView(console.file)
