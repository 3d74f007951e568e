"""Estimates, plans and runs as a few lines of HTML for a notebook, in its own colours, light or dark."""

from collections.abc import Iterable, Mapping
from html import escape

from fitroom.memory.estimate import Estimate
from fitroom.planning.option import Option
from fitroom.planning.result import Plan
from fitroom.report import plan_words, words
from fitroom.report.palette import KIND_COLOURS
from fitroom.report.run_record import Run
from fitroom.report.run_words import title, verdict
from fitroom.units import format_bytes, used_of

_NUM_LAYERS = 6
_GOOD, _ALARM = "#2e8b57", "#d1495b"
"""Both can be read on white and on black."""


def estimate_html(estimate: Estimate) -> str:
    """The verdict, the three sizes, and the peak by kind and by layer."""
    kinds = [(kind, size, KIND_COLOURS[kind]) for kind, size in estimate.by_kind.items() if size]
    layers = [(row.layer, row.bytes, "#66ccee") for row in estimate.by_layer[:_NUM_LAYERS]]
    return _block(
        escape(words.headline(estimate)),
        words.verdict(estimate),
        _GOOD if estimate.fits else _ALARM,
        _figures((size.name, format_bytes(size.size_bytes)) for size in words.sizes(estimate)),
        _bars("Peak by kind", sorted(kinds, key=lambda row: -row[1]), estimate.timeline.peak_bytes),
        _bars("Biggest layers", layers, estimate.timeline.peak_bytes),
    )


def plan_html(plan: Plan) -> str:
    """The verdict, memory and speed, why, and the memory of what there is to choose from."""

    def said(option: Option) -> str:
        recipe = plan_words.recipe_words(option.recipe, plan.batch_size, precision=plan.estimate.precision)
        speed = f", {plan_words.rate(option.speed)} a second" if option.speed else ""
        return f"{'▸ ' if plan_words.is_chosen(plan, option) else ''}{recipe}{speed}"

    options = plan_words.shown_options(plan)
    figures = [
        ("needs", used_of(plan.estimate.required_bytes, plan.budget.bytes)),
        ("speed", plan_words.speed_words(plan.speed, plan.batch_size)),
        ("changes", plan_words.effects(plan.changes)),
    ]
    return _block(
        escape(plan_words.headline(plan)),
        plan_words.verdict(plan),
        _GOOD,
        _figures(figures),
        f"<div>{escape(plan.why)}</div>",
        _bars(
            "Memory of what there is to choose from",
            [(said(option), option.required_bytes, "#66ccee" if option.fits else "#bbbbbb") for option in options],
            plan.budget.bytes,
        ),
    )


def run_html(run: Run) -> str:
    """The verdict and what to do next."""
    said = verdict(run)
    colour = {"good": _GOOD, "alarm": _ALARM, "plain": "inherit"}[said.tone]
    last = {metric: values[-1] for metric, values in run.history.items() if values and values[-1] is not None}
    return _block(
        escape(title(run)),
        str(said),
        colour,
        _figures((metric, f"{value:.4g}") for metric, value in last.items()),
        f"<div><code>{escape(str(run.path))}</code> · <code>.report()</code> shows all of it</div>",
    )


def facts_html(lines: Mapping[str, str]) -> str:
    """Names and values below each other."""
    cell = "border:0;background:none;padding:.1em 1em .1em 0;text-align:left;vertical-align:top;white-space:normal"
    rows = "".join(
        f'<tr style="background:none"><th scope="row" style="{cell};font-weight:normal;opacity:.7">{escape(name)}</th>'
        f'<td style="{cell};overflow-wrap:anywhere">{escape(value)}</td></tr>'
        for name, value in lines.items()
    )
    return f'<table style="border-collapse:collapse;color:inherit;font-size:inherit">{rows}</table>'


def _block(headline: str, verdict: str, colour: str, *parts: str) -> str:
    return (
        '<div style="max-width:44rem;line-height:1.5">'
        f'<div style="font-weight:600;overflow-wrap:anywhere">{headline}</div>'
        f'<div style="color:{colour};font-weight:600">{escape(verdict)}</div>{"".join(parts)}</div>'
    )


def _figures(figures: Iterable[tuple[str, str]]) -> str:
    items = "".join(
        f'<span><span style="opacity:.7">{escape(head)}</span> <b>{escape(value)}</b></span>' for head, value in figures
    )
    return f'<div style="display:flex;flex-wrap:wrap;gap:0 2em;margin:.4em 0">{items}</div>'


def _bars(heading: str, rows: list[tuple[str, int, str]], whole_bytes: int) -> str:
    """Lines of name, bar, size and share. Every cell says how it looks: a notebook has tables of its own style."""
    largest = max((size for _, size, _ in rows), default=0)
    cell = "border:0;background:none;padding:.1em .5em .1em 0"
    number = f"{cell};text-align:right;white-space:nowrap"
    lines = "".join(
        f'<tr style="background:none"><th scope="row" style="{cell};text-align:left;font-weight:normal;'
        f'width:44%;white-space:normal;overflow-wrap:anywhere">{escape(head)}'
        f'</th><td style="{cell};width:28%"><div style="width:{100 * size / largest:.1f}%;height:.8em;'
        f'border-radius:.2em;background:{colour}"></div></td>'
        f'<td style="{number}">{format_bytes(size)}</td>'
        f'<td style="{number};opacity:.7">{words.percent(size, whole_bytes)}</td></tr>'
        for head, size, colour in rows
    )
    titled = f'<div style="margin-top:.5em;font-weight:600">{heading}</div>'
    looks = "width:100%;table-layout:fixed;border-collapse:collapse;color:inherit;font-size:inherit"
    return f'{titled}<table style="{looks}">{lines}</table>' if rows else ""
