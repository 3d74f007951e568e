"""How each value shows itself: which function renders it. `fitroom.display` asks here."""

import html
from functools import singledispatch
from typing import Any

from rich.console import RenderableType

from fitroom.budget import Budget
from fitroom.cards.catalogue import Card
from fitroom.checks.finding import Diagnosis
from fitroom.explaining.explanation import Explanation
from fitroom.loops.fresh import Round
from fitroom.loops.leaks import Leaks
from fitroom.loops.trials.table import Trials
from fitroom.memory.estimate import Estimate
from fitroom.planning.max_batch import MaxBatch
from fitroom.planning.result import Plan
from fitroom.report import notebook
from fitroom.report.compare.trials import render_trials, render_trials_html
from fitroom.report.doctor.text import render_diagnosis_html, render_diagnosis_text
from fitroom.report.estimate.text import render_estimate_text
from fitroom.report.explain.text import render_explanation_text
from fitroom.report.facts import format_budget, format_facts, list_card_facts, list_max_batch_facts, render_facts
from fitroom.report.loops.text import render_leaks_text, render_round_text
from fitroom.report.plan.text import render_plan_text
from fitroom.report.run.report import render_report
from fitroom.report.shared.sheet import render_plain
from fitroom.report.watch.words import format_summary, list_facts
from fitroom.runs.run import Report, Run
from fitroom.watching.summary import WatchSummary


def show_text(value: Any) -> str:
    """Return a value as `print` shows it."""
    match value:
        case Budget():
            return format_budget(value)
        case Card():
            return format_facts(list_card_facts(value))
        case MaxBatch():
            return format_facts(list_max_batch_facts(value))
        case WatchSummary():
            return format_summary(value)
    return render_plain(show_rich(value))


@singledispatch
def show_rich(value: Any) -> RenderableType:
    """Return a value as rich prints it."""
    raise TypeError(f"no text is known for {type(value).__name__}")


@singledispatch
def show_html(value: Any) -> str:
    """Return a value as a notebook shows it."""
    raise TypeError(f"no HTML is known for {type(value).__name__}")


show_rich.register(Estimate, render_estimate_text)
show_rich.register(Plan, render_plan_text)
show_rich.register(Diagnosis, render_diagnosis_text)
show_html.register(Diagnosis, render_diagnosis_html)
show_rich.register(Leaks, render_leaks_text)
show_rich.register(Round, render_round_text)
show_rich.register(Explanation, render_explanation_text)
show_rich.register(Trials, render_trials)
show_html.register(Estimate, notebook.render_estimate)
show_html.register(Plan, notebook.render_plan)
show_html.register(Explanation, notebook.render_explanation)
show_html.register(Trials, render_trials_html)
show_html.register(Run, notebook.render_run)
show_html.register(Report, render_report)
show_html.register(Budget, lambda budget: render_facts({"budget": format_budget(budget)}))
show_html.register(Card, lambda card: render_facts(list_card_facts(card)))
show_html.register(MaxBatch, lambda found: render_facts(list_max_batch_facts(found)))
show_html.register(WatchSummary, lambda summary: render_facts(list_facts(summary)))
show_html.register(Leaks, lambda found: _render_preformatted(found))
show_html.register(Round, lambda finished: _render_preformatted(finished))


def _render_preformatted(value: Any) -> str:
    """The text of a value, as it is, for a notebook."""
    return f"<pre>{html.escape(show_text(value))}</pre>"
