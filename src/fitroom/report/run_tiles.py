"""The few figures of a run that matter most, on top of its page."""

from dataclasses import dataclass
from html import escape

from fitroom.report.run_record import Run
from fitroom.report.run_words import duration, fraction
from fitroom.units import format_bytes


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A figure with its name and what it is out of."""

    name: str
    figure: str
    beside: str
    share: float | None = None
    """Of the whole, where there is one: drawn as a bar."""

    def html(self) -> str:
        """As an entry of a list of definitions."""
        share = "" if self.share is None else f'<i class="meter" style="--share:{100 * min(self.share, 1):.1f}%"></i>'
        return f"<div><dt>{self.name}</dt><dd><b>{self.figure}</b><span>{escape(self.beside)}</span>{share}</dd></div>"


def tiles(run: Run) -> str:
    """What it gets right, memory, time and speed, as far as they are known."""
    shown = []
    if run.results and run.results.num_pictures:
        right, num_pictures = run.results.num_right, run.results.num_pictures
        share = right / num_pictures
        beside = f"{right:,} of {num_pictures:,} pictures"
        shown.append(Tile(name="right", figure=fraction(share), beside=beside, share=share))
    if (peak := run.readings.peak_bytes) is not None:
        limit = run.limit_bytes
        beside = f"at the peak, of {format_bytes(limit)}" if limit else "at the peak"
        shown.append(
            Tile(name="memory", figure=format_bytes(peak), beside=beside, share=peak / limit if limit else None)
        )
    if run.seconds:
        done, asked = run.num_epochs, run.facts["epochs"]
        beside = f"{done} of {asked} epochs"
        shown.append(Tile(name="time", figure=duration(run.seconds), beside=beside, share=done / max(asked, 1)))
    if (speed := run.readings.pictures_per_second) is not None:
        shown.append(Tile(name="speed", figure=f"{speed:,.0f} / s", beside="pictures trained, on average"))
    body = "\n".join(tile.html() for tile in shown)
    return f'<dl class="sizes">\n{body}\n</dl>' if shown else ""
