"""The report of a run as a file in its folder."""

from pathlib import Path
from typing import TYPE_CHECKING

from fitroom.files.durable import open_atomic
from fitroom.report.run.page import render_run_page
from fitroom.report.shared.templates import render
from fitroom.runs.layout import REPORT_FILE
from fitroom.runs.place import not_writable
from fitroom.runs.run import Report, Run, open_run

if TYPE_CHECKING:
    from markupsafe import Markup


def write_report(run_dir: str | Path) -> Path:
    """Write `report.html` into a run folder, from what is there; returns its path."""
    return write_page(open_run(run_dir))


def write_page(run: Run) -> Path:
    """Write the page of a run into its folder; returns its path."""
    path = run.path / REPORT_FILE
    # The name of an image file may hold bytes that are no text.
    page = render_run_page(run).encode("utf-8", "backslashreplace")
    try:
        with open_atomic(path) as file:
            file.write(page)
    except OSError as error:
        raise not_writable(run.path, error) from error
    return path


def is_whole(path: Path) -> bool:
    """Whether a report is there to its last line."""
    try:
        with open(path, "rb") as file:
            file.seek(-min(64, path.stat().st_size), 2)
            return file.read().rstrip().endswith(b"</html>")
    except OSError:
        return False


def render_report(report: Report) -> "Markup":
    """Return a written report for a notebook: the page in a frame, cut off from the notebook around it."""
    return render("run/frame.html", report=report, page=report.path.read_text(encoding="utf-8"))
