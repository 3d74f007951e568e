"""What is said of a watch: the same in the terminal, in the figure and on the page."""

import re
import textwrap
from collections.abc import Sequence

from fitroom.checks.input_advice import SLOW_SHARE
from fitroom.report.facts import Facts
from fitroom.report.shared.words import format_backend, format_count, format_duration
from fitroom.units import format_bytes, used_of
from fitroom.watching.summary import DeviceUse, Reading, WatchSummary

_WIDTH = 80
NOT_COUNTED = "memory is not counted by the framework"


def format_headline(summary: WatchSummary) -> str:
    """Say what was watched."""
    steps = format_count(summary.updates, "step")
    seconds = summary.seconds
    lasted = f"{seconds:.1f} s" if seconds < 60 else format_duration(seconds)
    return f"{steps} in {lasted} on {format_backend(summary.backend)}"


def format_summary(summary: WatchSummary) -> str:
    """Write the summary as lines of at most 80 columns."""
    facts = list_facts(summary)
    width = max(map(len, facts))
    lines = [f"fitroom: watched {format_headline(summary)}"]
    for name, value in facts.items():
        lines += _wrap(f"  {name:<{width}}  {value}", width + 4)
    for note in list_notes(summary):
        lines += _wrap(f"  {note}", 2)
    return "\n".join(lines)


def list_facts(summary: WatchSummary) -> Facts:
    """List memory by device, phases, host memory and input; what is unknown is left out."""
    facts = {each.name: _format_device(each, summary.peak_is_of_process) for each in summary.devices}
    known = {phase: size for phase, size in summary.phase_peak_bytes.items() if size is not None}
    if known:
        sizes = ", ".join(f"{phase} {format_bytes(size)}" for phase, size in known.items())
        facts["phases"] = f"{sizes} ({summary.phases_are})"
    if summary.host_bytes is not None:
        facts["host"] = f"{format_bytes(summary.host_bytes)} at most"
    if summary.input_wait is not None:
        facts["input"] = f"training waited for it {_format_percent(summary.input_wait)} of the time"
    facts["watching"] = f"took {_format_percent(summary.own_seconds / max(summary.seconds, 1e-9))} of one core"
    return facts


def list_notes(summary: WatchSummary) -> Sequence[str]:
    """List what a reader should know or do."""
    notes = list(summary.notes)
    if summary.input_wait is not None and summary.input_wait >= SLOW_SHARE:
        notes.insert(
            0,
            f"Input took {_format_percent(summary.input_wait)} of the time"
            + (f": try {summary.input_settings[0]}" if summary.input_settings else "")
            + "; `fitroom doctor --data` names the slowest stage.",
        )
    return notes


def find_limit(readings: Sequence[Reading]) -> int | None:
    """Return the limit of the fullest device, where it is known."""
    return readings[-1]["limit_bytes"] if readings else None


def _wrap(text: str, indent: int) -> list[str]:
    """Wrap a line, and never between a number and its unit."""
    joined = re.sub(r"(\d) (%|B|[KMG]iB)", "\\1\0\\2", text)
    return [line.replace("\0", " ") for line in textwrap.wrap(joined, _WIDTH, subsequent_indent=" " * indent)]


def _format_device(use: DeviceUse, peak_is_of_process: bool) -> str:
    named = f"{use.description}: " if use.description else ""
    if use.peak_bytes is None:
        return named + NOT_COUNTED
    peak = used_of(use.peak_bytes, use.limit_bytes) if use.limit_bytes else format_bytes(use.peak_bytes)
    since = " since the process began" if peak_is_of_process else ""
    busy = "" if use.utilization is None else f", busy {_format_percent(use.utilization)} of the time"
    return f"{named}peak {peak}{since}, {format_bytes(use.in_use_bytes)} at the end{busy}"


def _format_percent(share: float) -> str:
    """Write a share in percent, with a digit behind the point where it is small."""
    return f"{100 * share:.0f} %" if share >= 0.095 else f"{100 * share:.1f} %"
