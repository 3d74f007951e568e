"""Where the time of a run went."""

from html import escape

from fitroom.report.run_record import Run
from fitroom.report.run_words import duration

_WORDS = {
    "planning": "planning, with the start of the framework and the look at the pictures",
    "compiling": "compiling, with the first step of each recipe",
    "training": "training",
    "validating": "validation after each epoch",
    "evaluating": "evaluation of the result",
}
_COLOURS = ("--muted", "--backward", "--first", "--second", "--second")


def times(run: Run) -> str:
    """A bar for each part of the time, empty where it was not counted."""
    spent = run.times | dict(run.readings.spent_seconds)
    known = [(name, spent[name], colour) for name, colour in zip(_WORDS, _COLOURS, strict=True) if spent.get(name)]
    if not run.readings.spent_seconds:
        return ""
    largest = max(seconds for _, seconds, _ in known)
    rows = "\n".join(
        f'<tr style="--share:{100 * seconds / largest:.1f}%;--bar:var({colour})"><th scope="row">'
        f'{escape(name)}</th><td class="bar"><i></i></td><td>{_written(seconds)}</td></tr>'
        for name, seconds, colour in known
    )
    meaning = "; ".join(_WORDS[name] for name, _, _ in known if _WORDS[name] != name)
    said = f'<p class="muted">{escape(meaning[:1].upper() + meaning[1:])}.</p>' if meaning else ""
    return f'<table class="compared times"><caption>Where the time went</caption>{rows}</table>{said}'


def _written(seconds: float) -> str:
    return duration(seconds) if seconds >= 10 else f"{seconds:.1f} s"
