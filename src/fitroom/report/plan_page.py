"""A plan as one self-contained HTML page: no network, for phone and desktop, light and dark."""

from html import escape
from string import Template

from fitroom.planning.result import Plan
from fitroom.report import plan_words as words
from fitroom.report.chart_script import chart_script, hash_of
from fitroom.report.markup import asset, script_json, table
from fitroom.report.plan_chart import frontier_chart
from fitroom.report.words import percent
from fitroom.units import format_bytes
from fitroom.version import __version__


def plan_page(plan: Plan) -> str:
    """The whole page as text. Whatever comes from the model is escaped."""
    chart = frontier_chart(plan) if plan.frontier else None
    script = chart_script()
    sections = (
        ("frontier", "What there is to choose from", chart.html() if chart else ""),
        ("why", "Why", f'<p class="why">{escape(plan.why)}</p>'),
        ("changes", "What it changes about the result", changes_table(plan)),
        ("fallbacks", "If memory runs out all the same", _paragraph(words.fallback_words(plan))),
        ("notes", "Notes", _notes(plan)),
    )
    shown = [section for section in sections if section[2]]
    return Template(asset("plan.html")).substitute(
        policy=hash_of(script),
        style=asset("base.css") + asset("run.css"),
        title=escape(words.headline(plan)),
        verdict=escape(words.verdict(plan)),
        sizes=_sizes(plan),
        sections="\n\n".join(
            f'<section id="{key}">\n<h2>{heading}</h2>\n{body}\n</section>' for key, heading, body in shown
        ),
        version=__version__,
        data=script_json([chart.to_dict()] if chart else []),
        script=script,
    )


def _sizes(plan: Plan) -> str:
    budget_bytes, needed_bytes = plan.budget.bytes, plan.estimate.required_bytes
    step = words.step_words(plan.speed, plan.batch_size) if plan.speed else words.NO_GRAPH
    tiles = (
        ("peak", format_bytes(plan.estimate.peak_bytes), "the most in use at once during a training step"),
        ("needs at least", format_bytes(needed_bytes), f"{percent(needed_bytes, budget_bytes)} of the budget"),
        ("stays free", format_bytes(max(plan.free_bytes, 0)), words.reserve_words(plan)),
        ("samples a second", words.rate(plan.speed), step),
    )
    return "\n".join(
        f"<div><dt>{name}</dt><dd><b>{escape(figure)}</b><span>{escape(meaning)}</span></dd></div>"
        for name, figure, meaning in tiles
    )


def changes_table(plan: Plan, caption: str = "") -> str:
    """Each knob that is turned, and what that changes, as HTML."""
    if not plan.changes:
        return "<p>Nothing: every knob stays as the model has it.</p>"
    rows = [[words.knob_words(one), f"{one.before} → {one.after}", one.effect] for one in plan.changes]
    cells = [list(map(escape, row)) for row in rows]
    return table(("knob", "turned", "changes"), cells, caption=caption, kind="texts")


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>" if text else ""


def _notes(plan: Plan) -> str:
    items = "\n".join(f"<li>{escape(note)}</li>" for note in plan.notes)
    return f"<ul>{items}</ul>" if items else ""
