"""The sentences of an explanation, for the terminal and for notebooks."""

from fitroom.explaining.advice import Setting
from fitroom.explaining.explanation import Explanation
from fitroom.explaining.sentences import headline, list_facts, name_cause
from fitroom.units import format_bytes

NOT_RECOGNISED = "Not recognised"


def format_headline(explanation: Explanation) -> str:
    """What happened, in one line."""
    return headline(explanation.failure) if explanation.failure else NOT_RECOGNISED


def list_what(explanation: Explanation) -> list[str]:
    """The facts of the log, and the line that says so."""
    failure = explanation.failure
    if failure is None:
        return []
    source = f"line {failure.line_number}: {failure.quote}" if failure.line_number else failure.quote
    return [*list_facts(failure), *filter(None, [source])]


def list_why(explanation: Explanation) -> list[str]:
    """The cause and its reason."""
    cause = explanation.cause
    return [f"{name_cause(cause)}. {cause.why}"] if cause else []


def format_saving(setting: Setting) -> str:
    """What a setting needs and saves; empty where that is not known.

    >>> format_saving(Setting(what="", how="", needs_bytes=2**30, saves_bytes=3 * 2**30))
    'saves 3.00 GiB: needs 1.00 GiB'
    """
    if setting.saves_bytes is None:
        return ""
    saving = (
        f"saves {format_bytes(setting.saves_bytes)}"
        if setting.saves_bytes > 0
        else f"takes {format_bytes(-setting.saves_bytes)} more"
    )
    return saving if setting.needs_bytes is None else f"{saving}: needs {format_bytes(setting.needs_bytes)}"


def group_settings(explanation: Explanation) -> list[tuple[str, list[Setting]]]:
    """The settings by what they change, in their order."""
    groups: dict[str, list[Setting]] = {}
    for setting in explanation.settings:
        groups.setdefault(f"changes {setting.changes}", []).append(setting)
    return list(groups.items())
