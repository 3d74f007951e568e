"""Values show themselves through one door, and what they show is escaped by one rule."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from markupsafe import Markup

import fitroom
from fitroom.planning.max_batch import MaxBatch
from fitroom.report.shared.templates import dump_script_json, load_chart_script, render
from sample_estimates import small_estimate
from sample_plans import sample_plan

PACKAGE = Path(fitroom.__file__).parent
REPORT = PACKAGE / "report"
MAY_IMPORT_REPORT = ("report/", "cli/", "classify/", "lean/", "display.py")
MAY_MAKE_MARKUP = {"shared/templates.py", "estimate/page.py"}


def test_only_the_front_ends_and_the_door_import_report():
    importing = {
        str(path.relative_to(PACKAGE).as_posix())
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^\s*(from|import) fitroom\.report\b", path.read_text(), re.MULTILINE)
    }
    assert [path for path in sorted(importing) if not path.startswith(MAY_IMPORT_REPORT)] == []


def test_importing_fitroom_imports_neither_report_nor_what_it_draws_with():
    program = "import sys, fitroom; print(*sorted(name for name in sys.modules if name.startswith(%r)))"
    names = ("fitroom.report", "jinja2", "markupsafe", "rich")
    done = subprocess.run([sys.executable, "-c", program % (names,)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (small_estimate(), "TinyNet, batch 8"),
        (sample_plan(), "TinyNet, batch 256"),
        (fitroom.Budget.of("12GiB"), "12.00 GiB for training, as given"),
        (fitroom.find_card("H200"), "H200"),
        (MaxBatch(plain=12, with_remat=40, budget=fitroom.Budget.of("12GiB")), "12.00 GiB"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_shows_itself_with_print_and_in_a_notebook(value, words):
    assert words in str(value)
    assert words in value._repr_html_()
    assert type(value._repr_html_()) is str


def test_markup_is_made_in_two_files_and_nothing_is_escaped_by_hand():
    sources = {path.relative_to(REPORT).as_posix(): path.read_text() for path in REPORT.rglob("*.py")}
    assert {path for path, text in sources.items() if "Markup(" in text} == MAY_MAKE_MARKUP
    assert [path for path, text in sources.items() if "html import escape" in text] == []
    templates = [path for suffix in ("html", "svg") for path in REPORT.rglob(f"*.{suffix}")]
    assert templates
    assert [path for path in templates if re.search(r"\|\s*safe|autoescape", path.read_text())] == []


def test_a_template_escapes_a_string_and_leaves_markup():
    shown = render("facts.html", facts={"<b>": '"><script>', "kept": Markup("<i>so</i>")})
    assert "&lt;b&gt;" in shown
    assert "<script" not in shown
    assert "<i>so</i>" in shown


def test_no_data_ends_the_script_that_it_stands_in():
    assert "<" not in dump_script_json({"<!--": ["</script>", "<script>"]})
    assert "</script" not in load_chart_script().lower()
