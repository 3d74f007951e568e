"""A diagnosis for reading: in a terminal, with `print`, and in a notebook."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from fitroom.checks.finding import Diagnosis, Finding
from fitroom.report.facts import render_facts
from fitroom.report.shared.sheet import Sheet
from fitroom.report.shared.words import format_backend, format_count

if TYPE_CHECKING:
    from markupsafe import Markup

_MARKS = {"pass": ("ok", "green"), "warning": ("warning", "yellow"), "failure": ("FAILURE", "bold red")}


def render_diagnosis_text(diagnosis: Diagnosis) -> RenderableType:
    """Lay out all findings: the status, the name, what was found, and the fix below it; then the verdict."""
    return _DiagnosisText(diagnosis)


def format_verdict(diagnosis: Diagnosis) -> str:
    """Say in one sentence what the findings come to."""
    failures, warnings = len(diagnosis.having("failure")), len(diagnosis.having("warning"))
    name = format_backend(diagnosis.backend)
    more = f"; {format_count(warnings, 'warning')}" if warnings else ""
    if "backend" in diagnosis and diagnosis["backend"].status == "failure":
        return "training will not work" + ("" if diagnosis.backend == "none" else f" with {name}")
    if failures and diagnosis.uses_gpu:
        return f"{name} sees the GPU, but training on it will not work{more}"
    if failures:
        return f"training on the GPU will not work with {name}{more}"
    if "input" in diagnosis:
        is_known = diagnosis["input"].facts["step_seconds"] is not None
        judged = "the input is too slow" if diagnosis["input"].status == "warning" else "the input keeps up"
        return judged if is_known else "the input is timed; with a model, it is judged whether it keeps up"
    if diagnosis.uses_gpu:
        return f"{name} trains on the GPU{more}"
    return f"{name} trains on the CPU: there is no GPU for it here{more}"


@dataclass(frozen=True)
class _DiagnosisText:
    """Laid out when printed, because only then are width and encoding known."""

    diagnosis: Diagnosis

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sheet = Sheet.of(options)
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold", max_width=22)
        table.add_column(overflow="fold")
        for finding in self.diagnosis:
            mark, style = _MARKS[finding.status]
            table.add_row(Text(mark, style), sheet.make_text(finding.name), _lay_out(finding, sheet))
        yield table
        yield Text()
        style = "bold green" if self.diagnosis.is_ok else "bold red"
        yield sheet.make_text(format_verdict(self.diagnosis), style)


def _lay_out(finding: Finding, sheet: Sheet) -> Text:
    text = sheet.make_text(finding.found)
    if finding.fix:
        label = "fix: " if finding.status != "pass" else "try: "
        text.append_text(Text("\n" + label, "cyan")).append_text(sheet.make_text(finding.fix))
    return text


def render_diagnosis_html(diagnosis: Diagnosis) -> "Markup":
    """Render the findings for a notebook, status and name beside what was found."""
    facts = {
        f"{_MARKS[finding.status][0]}: {finding.name}{'' if not count else f' ({count + 1})'}": finding.found
        + (f" | fix: {finding.fix}" if finding.fix and finding.status != "pass" else "")
        for count, finding in _count_names(diagnosis)
    }
    return render_facts({"verdict": format_verdict(diagnosis)} | facts)


def _count_names(diagnosis: Diagnosis) -> list[tuple[int, Finding]]:
    """Each finding with how many of its name came before."""
    seen: dict[str, int] = {}
    counted = []
    for finding in diagnosis:
        counted.append((seen.get(finding.name, 0), finding))
        seen[finding.name] = seen.get(finding.name, 0) + 1
    return counted
