"""Runs side by side: what is grouped, what is said, and the page in a real Chromium, light and dark."""

import json

import pytest

from browser_pages import COLOURS, HOSTILE, Opened
from fitroom.report.compare.groups import group_runs
from fitroom.report.compare.page import write_comparison
from fitroom.report.compare.text import render_comparison, render_runs
from fitroom.report.shared.sheet import render_plain
from fitroom.runs.run import open_run
from sample_runs import write_plain_run, write_run


def write_fold(folder, name, number, accuracy):
    run = write_run(folder / name / f"fold-{number}", num_readings=20)
    job, results = (json.loads((run / file).read_text()) for file in ("job.json", "results.json"))
    job.setdefault("options", {}).update({"fold": f"{number}/2", "model": name})
    results["metrics"]["accuracy"] = accuracy
    (run / "job.json").write_text(json.dumps(job))
    (run / "results.json").write_text(json.dumps(results))
    return open_run(run)


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    runs = [
        write_fold(folder, name, number, accuracy)
        for name, accuracies in {"xception": (0.90, 0.94), "vgg16": (0.80, 0.70)}.items()
        for number, accuracy in enumerate(accuracies, 1)
    ]
    return group_runs(runs)


@pytest.fixture(scope="module")
def page(groups, tmp_path_factory):
    return write_comparison(groups, tmp_path_factory.mktemp("page") / "compare.html")


def test_folds_of_a_training_are_one_group_with_their_spread(groups):
    assert [group.name for group in groups] == ["xception", "vgg16"]
    assert groups[0].accuracy.mean == pytest.approx(0.92)
    assert (groups[0].accuracy.low, groups[0].accuracy.high) == (0.90, 0.94)
    assert groups[0].accuracy.deviation == pytest.approx(0.0283, abs=1e-4)
    assert groups[0].average_history("val_accuracy") == groups[0].runs[0].history["val_accuracy"]


def test_the_terminal_shows_what_differs_and_names_the_best(groups):
    text = render_plain(render_comparison(groups))
    assert "Best: xception, accuracy 92.0 ± 2.8 %, 17.0 points ahead of vgg16." in text
    assert "75.0 ± 7.1 %" in text
    assert "batch size" not in text


def test_one_training_is_not_called_the_best(groups):
    assert render_plain(render_comparison(groups[:1])).startswith("xception: accuracy 92.0 ± 2.8 %.")


def test_a_lead_within_the_spread_is_said_to_be(tmp_path):
    runs = [
        write_fold(tmp_path, name, at, a)
        for name, pair in {"a": (0.8, 0.9), "b": (0.79, 0.89)}.items()
        for at, a in enumerate(pair, 1)
    ]
    assert "within the spread of the folds" in render_plain(render_comparison(group_runs(runs)))


def test_runs_of_fit_without_results_are_compared_by_their_history(tmp_path):
    runs = [open_run(write_plain_run(tmp_path / name)) for name in ("a", "b", "c", "d")]
    text = render_plain(render_comparison(group_runs(runs)))
    assert "the same as b" in text
    listed = render_plain(render_runs(runs))
    assert listed.count("finished") == 4


def test_the_page_opens_without_a_complaint_and_draws_a_line_for_each(browser, page):
    with Opened(browser, page) as opened:
        opened.page.wait_for_load_state("networkidle")
        assert opened.complaints == []
        assert opened.requests == [page.as_uri()]
        assert "Best: xception" in opened.page.inner_text("h1")
        blue, red = "68,119,170", "238,102,119"
        assert {blue, red} <= set(opened.chart("compare-val_accuracy").evaluate(COLOURS))


@pytest.mark.parametrize("width", [380, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_stays_within_its_width(browser, page, width, scheme):
    with Opened(browser, page, width=width, color_scheme=scheme) as opened:
        assert opened.is_within_its_width


def test_names_of_folders_are_text_and_nothing_else(browser, tmp_path):
    names = [name.replace("/", "_") for name in (*HOSTILE[:3], HOSTILE[3])]
    runs = [open_run(write_plain_run(tmp_path / name)) for name in names]
    path = write_comparison(group_runs(runs), tmp_path / "compare.html")
    with Opened(browser, path, width=380) as opened:
        assert opened.complaints == []
        assert opened.page.evaluate("window.hit") is None
        assert opened.is_within_its_width
