"""Values as a few lines of HTML for a notebook, in its own colours, light or dark."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fitroom.explaining.explanation import Explanation
from fitroom.memory.estimate import Estimate
from fitroom.planning.option import Option
from fitroom.planning.result import Plan
from fitroom.report.estimate import words as estimate_words
from fitroom.report.explain import words as explain_words
from fitroom.report.plan import words as plan_words
from fitroom.report.run.words import format_title, judge_run
from fitroom.report.shared.palette import KIND_COLOURS
from fitroom.report.shared.templates import render
from fitroom.runs.run import Run
from fitroom.units import format_bytes, used_of

if TYPE_CHECKING:
    from markupsafe import Markup

_NUM_LAYERS = 6
_GOOD, _ALARM = "#2e8b57", "#d1495b"
"""Both can be read on white and on black."""

_BAR, _BAR_TOO_LARGE = "#66ccee", "#bbbbbb"


@dataclass(frozen=True, kw_only=True)
class _Bars:
    """Rows of name, bytes and colour under a heading, each with its share of the whole."""

    heading: str
    rows: list[tuple[str, int, str]]
    whole_bytes: int


def render_estimate(estimate: Estimate) -> "Markup":
    """Render the verdict, the three sizes, and the peak by kind and by layer."""
    kinds = [(str(kind), size, KIND_COLOURS[kind]) for kind, size in estimate.by_kind.items() if size]
    layers = [(row.layer, row.bytes, _BAR) for row in estimate.by_layer[:_NUM_LAYERS]]
    whole_bytes = estimate.timeline.peak_bytes
    return render(
        "notebook.html",
        headline=estimate_words.format_headline(estimate),
        verdict=estimate_words.format_verdict(estimate),
        colour=_GOOD if estimate.fits else _ALARM,
        figures=[(size.name, format_bytes(size.size_bytes)) for size in estimate_words.list_sizes(estimate)],
        bars=[
            _Bars(heading="Peak by kind", rows=sorted(kinds, key=lambda row: -row[1]), whole_bytes=whole_bytes),
            _Bars(heading="Biggest layers", rows=layers, whole_bytes=whole_bytes),
        ],
    )


def render_explanation(explanation: Explanation) -> "Markup":
    """Render what happened, why, and what to try."""
    return render("explain/notebook.html", explanation=explanation, words=explain_words, colour=_ALARM)


def render_plan(plan: Plan) -> "Markup":
    """Render the verdict, memory and speed, why, and the memory of the alternatives."""

    def describe(option: Option) -> str:
        recipe = plan_words.format_recipe(option.recipe, plan.batch_size, precision=plan.estimate.precision)
        speed = f", {plan_words.format_rate(option.speed)} a second" if option.speed else ""
        return f"{'▸ ' if plan_words.is_chosen(plan, option) else ''}{recipe}{speed}"

    rows = [
        (describe(option), option.required_bytes, _BAR if option.fits else _BAR_TOO_LARGE)
        for option in plan_words.select_options(plan)
    ]
    return render(
        "notebook.html",
        headline=plan_words.format_headline(plan),
        verdict=plan_words.format_verdict(plan),
        colour=_GOOD,
        figures=[
            ("needs", used_of(plan.estimate.required_bytes, plan.budget.bytes)),
            ("speed", plan_words.format_speed(plan.speed, plan.batch_size)),
            ("changes", plan_words.format_effects(plan.changes)),
        ],
        why=plan.why,
        bars=[_Bars(heading="Memory of the alternatives", rows=rows, whole_bytes=plan.budget.bytes)],
    )


def render_run(run: Run) -> "Markup":
    """Render the verdict, the last value of each metric, and where the run is."""
    verdict = judge_run(run)
    last = {metric: values[-1] for metric, values in run.history.items() if values}
    return render(
        "notebook.html",
        headline=format_title(run),
        verdict=str(verdict),
        colour={"good": _GOOD, "alarm": _ALARM, "plain": "inherit"}[verdict.tone],
        figures=[(metric, f"{value:.4g}") for metric, value in last.items() if value is not None],
        path=run.path,
    )
