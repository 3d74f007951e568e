"""The report of a run as a value, which shows itself in a notebook."""

from dataclasses import dataclass
from html import escape
from pathlib import Path

from fitroom.report.run_page import write_page
from fitroom.report.run_record import Run
from fitroom.report.run_words import verdict


@dataclass(frozen=True, kw_only=True)
class Report:
    """A written report: `path` is the HTML file."""

    path: Path
    verdict: str

    def _repr_html_(self) -> str:
        """The page itself in a frame, cut off from the notebook around it."""
        page = escape(self.path.read_text(encoding="utf-8"))
        return (
            f"<p>{escape(self.verdict)}</p>"
            f'<iframe srcdoc="{page}" sandbox="allow-scripts" title="Report of the run" '
            'style="width:100%;height:40rem;border:1px solid #8886;border-radius:.5rem"></iframe>'
            f"<p><code>{escape(str(self.path))}</code></p>"
        )


def written_report(run: Run) -> Report:
    """Write the report of a run into its folder."""
    return Report(path=write_page(run), verdict=str(verdict(run)))
