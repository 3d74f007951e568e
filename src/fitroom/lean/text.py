"""Advice as a table for the terminal."""

from typing import Any

from fitroom.lean.advice import Advice, Row
from fitroom.report.shared.words import format_backend
from fitroom.units import format_bytes


def render_advice(advice: Advice) -> Any:
    """The table, then how to make each change."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    title = f"{advice.model}, batch {advice.batch_size}, on {advice.gpu} with {format_backend(advice.backend)}"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0))
    table.add_column("change", no_wrap=True)
    for name in ("peak", "saves", "images/s", "params", "file"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("risk", no_wrap=True)
    table.add_row("as it is", format_bytes(advice.own.peak_bytes), "", *_sizes(advice.own), "")
    for row in advice.rows:
        saved = (advice.own.peak_bytes - row.peak_bytes) / advice.own.peak_bytes
        peak = ("~" if row.is_interpolated else "") + format_bytes(row.peak_bytes)
        table.add_row(row.name, peak, f"{100 * saved:.0f} %", *_sizes(row), row.risk or "")
    parts: list[Any] = [table, Text("")]
    parts += [Text(f"{row.name}: {row.how}", overflow="fold") for row in advice.rows]
    if knobs := list(dict.fromkeys(row.knob for row in advice.rows if row.knob)):
        parts.append(Text(f"\nplanned where nothing else fits: fitroom plan {advice.model} --allow {','.join(knobs)}"))
    if any(row.is_interpolated for row in advice.rows):
        parts.append(Text("~ interpolated from the numbers of weights and activations, not estimated"))
    if advice.useless:
        parts.append(Text(f"These would save next to nothing here: {', '.join(advice.useless)}."))
    parts += [Text(f"not estimated: {name}: {reason}") for name, reason in advice.refused]
    parts.append(Text("Each of these changes the task: train, and compare the accuracy. Speed is predicted."))
    return Group(*parts)


def _sizes(row: Row) -> tuple[str, str, str]:
    speed = "" if row.samples_per_second is None else f"{row.samples_per_second:,.0f}"
    return speed, _short(row.parameters), format_bytes(row.file_bytes)


def _short(number: int) -> str:
    """A number of parameters in three digits.

    >>> _short(20_871_725), _short(950)
    ('20.9M', '950')
    """
    for factor, letter in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if number >= factor:
            return f"{number / factor:.3g}{letter}"
    return str(number)
