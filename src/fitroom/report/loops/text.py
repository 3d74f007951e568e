"""Rounds and leaks for reading in a terminal."""

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from fitroom.loops.fresh import Round
from fitroom.loops.leaks import Leaks, Suspect
from fitroom.report.loops.words import NO_SUSPECTS, describe_growth, describe_round, judge_leaks
from fitroom.report.shared.sheet import Sheet
from fitroom.units import format_bytes


def render_round_text(finished: Round) -> RenderableType:
    """Lay out what a round freed and what stayed."""
    return Text("\n".join(describe_round(finished)))


def render_leaks_text(found: Leaks) -> RenderableType:
    """Lay out the verdict, the growth of each memory, and the suspects."""
    return _LeaksText(found)


@dataclass(frozen=True)
class _LeaksText:
    """Laid out when printed, because only then are width and encoding known."""

    found: Leaks

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sheet, found = Sheet.of(options), self.found
        yield sheet.make_text(judge_leaks(found), "bold")
        yield sheet.list_sentences([describe_growth(each) for each in found.growths])
        if not found.is_leaking:
            return
        yield Text()
        yield Text("Suspects" if found.suspects else "Suspects: none that Python can see", "bold")
        if not found.suspects:
            yield sheet.list_sentences([NO_SUSPECTS])
        for suspect in found.suspects:
            yield sheet.make_text(_describe_headline(suspect))
            yield sheet.indent(sheet.list_sentences(_describe_details(suspect)))


def _describe_headline(suspect: Suspect) -> str:
    size = f"{format_bytes(suspect.bytes_a_round)} a round, " if suspect.bytes_a_round is not None else ""
    return f"[{suspect.kind}] {size}{suspect.what}"


def _describe_details(suspect: Suspect) -> list[str]:
    held = f"held by {suspect.holder}" if suspect.holder else ""
    made = f"made at {suspect.made_at}" if suspect.made_at else ""
    return [each for each in (held, made, f"next: {suspect.advice}") if each]
