"""The section of a run's page about its plan: what there was to choose from, and what the chosen one changes."""

from html import escape

from fitroom.report import plan_words as words
from fitroom.report.plan_chart import frontier_chart
from fitroom.report.plan_page import changes_table
from fitroom.report.run_chart import Chart
from fitroom.report.run_record import Run


def plan_charts(run: Run) -> list[Chart]:
    """Memory against speed of what there was to choose from."""
    return [frontier_chart(run.plan)] if run.plan and run.plan.frontier else []


def plan(run: Run) -> str:
    """The verdict, the chart, what the recipe changes, and what comes next where memory runs out."""
    if run.plan is None:
        return ""
    speed = words.speed_words(run.plan.speed, run.plan.batch_size)
    about = f"The plan {words.verdict(run.plan)}. Predicted for {run.plan.gpu}: {speed}."
    next_ones = words.fallback_words(run.plan)
    changes = changes_table(run.plan, "What it changes about the result")
    parts = [
        f"<p>{escape(about)}</p>",
        *(chart.html() for chart in plan_charts(run)),
        changes if run.plan.changes else "<p>It changes nothing about the result.</p>",
        f"<p>If memory runs out all the same: {escape(next_ones)}.</p>" if next_ones else "",
    ]
    return "".join(parts)
