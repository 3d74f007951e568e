"""An explanation for reading in a terminal."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from fitroom.explaining.explanation import Explanation
from fitroom.report.explain import words
from fitroom.report.shared.sheet import Sheet


def render_explanation_text(explanation: Explanation) -> RenderableType:
    """Lay out what happened, why, and what to try next."""
    return _ExplanationText(explanation)


@dataclass(frozen=True)
class _ExplanationText:
    """Laid out when printed, because only then are width and encoding known."""

    explanation: Explanation

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sheet, explanation = Sheet.of(options), self.explanation
        yield sheet.make_text(words.format_headline(explanation), "bold red" if explanation.recognised else "bold")
        if facts := words.list_what(explanation):
            yield sheet.list_sentences(facts)
        if why := words.list_why(explanation):
            yield Text("\nWhy", "bold")
            yield from (sheet.indent(sheet.make_text(sentence)) for sentence in why)
        if explanation.settings:
            yield Text("\nWhat to try, in the order of what it changes about the result", "bold")
            yield from _lay_out_settings(explanation, sheet)
        if explanation.notes:
            yield Text("\nNotes", "bold") if explanation.recognised else Text()
            yield sheet.list_sentences(explanation.notes)


def _lay_out_settings(explanation: Explanation, sheet: Sheet) -> Iterator[RenderableType]:
    number = 0
    for title, settings in words.group_settings(explanation):
        yield sheet.indent(Text(title, "italic"))
        for setting in settings:
            number += 1
            saving = words.format_saving(setting)
            yield Padding(sheet.make_text(f"{number}. {setting.what}{f' ({saving})' if saving else ''}"), (0, 0, 0, 4))
            yield Padding(sheet.make_text(setting.how, "cyan"), (0, 0, 0, 7))
