"""A plan as one self-contained HTML page: no network, for phone and desktop, light and dark."""

from fitroom import __version__
from fitroom.planning.result import Plan
from fitroom.report.plan import words
from fitroom.report.plan.chart import make_frontier_chart
from fitroom.report.shared.templates import dump_script_json, hash_script, load_asset, load_chart_script, render
from fitroom.report.shared.words import format_percent
from fitroom.units import format_bytes


def render_plan_page(plan: Plan) -> str:
    """Return the whole page as text."""
    chart = make_frontier_chart(plan) if plan.frontier else None
    script = load_chart_script()
    return render(
        "plan/page.html",
        script_hash=hash_script(script),
        style=load_asset("base.css") + load_asset("charts.css"),
        script=script,
        data=dump_script_json([chart.to_dict()] if chart else []),
        title=words.format_headline(plan),
        verdict=words.format_verdict(plan),
        tiles=_list_tiles(plan),
        chart=chart,
        plan=plan,
        changes=list_changes(plan),
        fallbacks=words.format_fallbacks(plan),
        version=__version__,
    )


def list_changes(plan: Plan) -> list[tuple[str, str, str]]:
    """Return each knob that is turned: its name, its values before and after, and what that changes."""
    return [(words.format_knob(one), f"{one.before} → {one.after}", one.effect) for one in plan.changes]


def _list_tiles(plan: Plan) -> list[tuple[str, str, str]]:
    """Return the figures on top of the page, each with its name and its meaning."""
    budget_bytes, needed_bytes = plan.budget.bytes, plan.estimate.required_bytes
    step = words.format_step_time(plan.speed, plan.batch_size) if plan.speed else words.NO_GRAPH
    return [
        ("peak", format_bytes(plan.estimate.peak_bytes), "the most in use at once during a training step"),
        ("needs at least", format_bytes(needed_bytes), f"{format_percent(needed_bytes, budget_bytes)} of the budget"),
        ("stays free", format_bytes(max(plan.free_bytes, 0)), words.format_reserve(plan)),
        ("samples a second", words.format_rate(plan.speed), step),
    ]
