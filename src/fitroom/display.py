"""How values show themselves: with `print`, where rich prints them, and in a notebook.

Values import this module, which imports nothing of ours until one of them is shown. It is the one door to
`fitroom.report` from below: values lie under `report` in the order of imports, and what renders them lies in it.
"""

from pathlib import Path
from typing import Any


class HtmlDisplay:
    """A value that a notebook shows as a few lines of HTML."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        from fitroom.report.show import show_html

        return str(show_html(self))


class TextDisplay(HtmlDisplay):
    """A value that `print` shows as text, too."""

    __slots__ = ()

    def __str__(self) -> str:
        from fitroom.report.show import show_text

        return show_text(self)


class RichDisplay(TextDisplay):
    """A value that rich lays out to the width of the terminal, too."""

    __slots__ = ()

    def __rich__(self) -> Any:
        """Return what rich prints."""
        from fitroom.report.show import show_rich

        return show_rich(self)


def write_report(run: Any) -> tuple[Path, str]:
    """Write the report of a run into its folder; returns the path of the page and the verdict on the run."""
    from fitroom.report.run.report import write_page
    from fitroom.report.run.words import judge_run

    return write_page(run), str(judge_run(run))


def check_plot(path: Path) -> Path:
    """Check that a plot can be saved there, before the work that it is to show. Returns the path."""
    from fitroom.report.save import check_place

    check_place(path)
    return path


def save_watch(summary: Any, readings: Any, path: Path) -> None:
    """Save the readings of a watch as a figure or a page, as the end of the file's name asks."""
    from fitroom.report.save import save_watch

    save_watch(summary, readings, path)
