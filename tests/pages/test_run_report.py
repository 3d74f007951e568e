"""A run folder read and written as a page, whatever is in it."""

import hashlib
import json
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

import fitroom
from fitroom.errors import InputError
from fitroom.report import shared
from fitroom.report.run.charts import MAX_STEP_COLUMNS, make_memory_charts, make_training_charts
from fitroom.report.run.report import write_report
from fitroom.report.run.words import format_title, judge_run
from fitroom.report.shared.chart import Chart
from fitroom.runs.lock import FolderLock
from fitroom.runs.readings import MAX_POINTS, thin_readings
from sample_estimates import estimate_of, long_timeline
from sample_plans import sample_plan
from sample_runs import BEGUN, PEAK_BYTES, readings, run_facts, step_estimate, write_plain_run, write_run

ASSETS = Path(shared.__file__).parent / "assets"
SECTIONS = ["training", "memory", "mistakes", "images", "classes", "recipe", "plan"]
SECTIONS += ["events", "skipped", "commands", "versions"]


def page_of(folder: Path) -> str:
    path = write_report(folder)
    assert path == folder / "report.html"
    assert not list(folder.glob(".*")), "something was left beside it"
    return path.read_text()


def sections_of(page: str) -> list[str]:
    return re.findall(r'<section id="(\w+)"', page)


def change_facts(folder: Path, **facts: object) -> None:
    (folder / "run.json").write_text(json.dumps(run_facts() | facts))


def charts_of(folder: Path) -> dict[str, Chart]:
    run = fitroom.open_run(folder)
    return {chart.key: chart for chart in [*make_training_charts(run), *make_memory_charts(run)]}


def test_a_finished_run_is_told_in_one_sentence(tmp_path):
    run = fitroom.open_run(write_run(tmp_path))
    assert str(judge_run(run)) == ("Trained: accuracy 90.7 % on 772 held-out images. In 7.41 of 8.00 GiB, 12 minutes.")
    assert judge_run(run).tone == "good"
    assert format_title(run) == "xception on my flowers"


def test_a_model_that_only_guesses_is_not_praised(tmp_path):
    write_run(tmp_path, classes=["a", "b"])
    data = json.loads((tmp_path / "results.json").read_text())
    (tmp_path / "results.json").write_text(json.dumps(data | {"confusion": [[7, 0], [5, 0]]}))
    said = judge_run(fitroom.open_run(tmp_path))
    assert said.sentence.startswith("Always predicting the most frequent class would do as well.")
    assert said.tone == "plain"


def test_a_whole_run_has_every_section(tmp_path):
    page = page_of(write_run(tmp_path))
    assert sections_of(page) == SECTIONS
    assert "The peak was as predicted; the micro-batch changed during the run (80, 64)" in page
    assert "7.35 GiB, which is the largest part that fits the budget" in page
    assert "--budget 8GiB --run-dir runs/a</code>" in page
    assert "fitroom train &#39;my flowers/&#39;" in page
    assert f"fitroom predict {tmp_path} image.jpg" in page
    assert "cut short: the file ends within the picture" in page
    assert "keras 3.15.1" in page
    assert "<dt>recomputed</dt><dd>blocks</dd>" in page
    assert "The plan fits with whole batches, float32, 1 segment recomputed" in page


@pytest.mark.parametrize("plan", [{"schema_version": 99}, {"schema_version": 1}, "no plan at all"])
def test_a_plan_that_cannot_be_read_is_left_out(tmp_path, plan):
    write_run(tmp_path)
    job = json.loads((tmp_path / "job.json").read_text())
    (tmp_path / "job.json").write_text(json.dumps(job | {"plan": plan}))
    assert sections_of(page_of(tmp_path)) == [section for section in SECTIONS if section != "plan"]


def test_a_run_of_fit_shows_the_plan_that_it_kept(tmp_path):
    write_plain_run(tmp_path)
    sample_plan().save(tmp_path / "plan.json")
    assert "plan" in sections_of(page_of(tmp_path))


@pytest.mark.parametrize(
    ("file", "gone"),
    [
        ("history.json", set()),
        ("log.jsonl", {"events"}),
        ("job.json", {"classes", "plan"}),
        ("estimate.json", set()),
        ("readings.jsonl", set()),
        ("results.json", {"mistakes", "images"}),
        ("skipped.jsonl", {"skipped"}),
    ],
)
@pytest.mark.parametrize("way", ["missing", "cut short", "another shape"])
def test_a_page_is_made_whatever_file_is_missing_or_damaged(tmp_path, file, gone, way):
    write_run(tmp_path, without=[file] if way == "missing" else [])
    if way == "cut short":
        text = (tmp_path / file).read_text()
        (tmp_path / file).write_text(text[: len(text) // 2])
    if way == "another shape":
        (tmp_path / file).write_text("[1, 2]\n")
    page = page_of(tmp_path)
    is_lines = file.endswith(".jsonl")
    if way == "cut short" and is_lines:
        assert set(sections_of(page)) == set(SECTIONS)
    else:
        assert set(sections_of(page)) == set(SECTIONS) - gone
    assert (f"{file} exists but cannot be read." in page) == (way != "missing" and not is_lines)


def test_a_run_of_fit_alone_has_a_page_too(tmp_path):
    page = page_of(write_plain_run(tmp_path))
    assert sections_of(page) == ["training", "recipe", "events", "commands", "versions"]
    assert "Trained: accuracy 89.4 % in validation after 10 epochs." in page
    assert "keras.saving.load_model" in page
    assert "No readings of memory and speed were kept." in page


def test_a_run_that_was_killed_says_how_to_go_on(tmp_path):
    write_run(tmp_path, without=["results.json"])
    change_facts(tmp_path, state="running", epochs=30)
    run = fitroom.open_run(tmp_path)
    assert run.state == "stopped"
    assert judge_run(run).headline == "Stopped before the end: 10 of 30 epochs done."
    assert "in 7.41 of 8.00 GiB, 12 minutes" in judge_run(run).sentence
    assert judge_run(run).sentence.endswith("Run the same command again to resume from the last checkpoint.")


def test_an_interrupted_run_and_the_reason_of_a_failure_are_said(tmp_path):
    write_plain_run(tmp_path, state="interrupted")
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"kind": "failed", "message": "The disk is full."}\n')
    assert str(judge_run(fitroom.open_run(tmp_path))) == (
        "Interrupted: 10 of 10 epochs done. The disk is full. So far: loss 0.212. "
        "Make the same call again to resume from the last checkpoint."
    )
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"kind": "resumed", "message": "resuming at batch 3 of epoch 2."}\n')
    assert "The disk is full." not in judge_run(fitroom.open_run(tmp_path)).sentence


def test_a_run_under_way_is_told_from_one_that_was_killed(tmp_path):
    write_plain_run(tmp_path, state="running")
    lock = FolderLock(tmp_path / "lock")
    assert judge_run(fitroom.open_run(tmp_path)).headline == "Training: 10 of 10 epochs done so far."
    lock.release()
    assert fitroom.open_run(tmp_path).state == "stopped"


def test_before_the_first_epoch_ends_the_loss_is_shown_batch_by_batch(tmp_path):
    write_run(tmp_path, without=["history.json", "results.json"])
    change_facts(tmp_path, state="running")
    assert [*charts_of(tmp_path)] == ["loss", "learning-rate", "speed", "step", "memory"]
    assert "0 of 10 epochs done" in page_of(tmp_path)


def test_a_folder_without_a_run_is_refused_with_a_hint(tmp_path):
    with pytest.raises(InputError, match=r"no run\.json") as caught:
        write_report(tmp_path)
    assert "fitroom train" in (caught.value.hint or "")
    assert list(tmp_path.iterdir()) == []


def test_an_older_report_is_replaced(tmp_path):
    write_run(tmp_path)
    (tmp_path / "report.html").write_text("old")
    assert page_of(tmp_path).startswith("<!DOCTYPE html>")


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    write_run(tmp_path)
    (tmp_path / "report.html").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        write_report(tmp_path)
    assert not list(tmp_path.glob(".*"))


def test_a_history_without_an_epoch_is_no_chart(tmp_path):
    write_run(tmp_path)
    (tmp_path / "history.json").write_text('{"loss": [], "val_loss": []}')
    assert "history-loss" not in charts_of(tmp_path)
    page_of(tmp_path)


def test_names_are_only_names(tmp_path):
    names = ["<script>alert(1)</script>", "\"quoted\" 'names' & co", "שושנה", "x" * 300, "$title", "</script><b>"]
    page = page_of(write_run(tmp_path, classes=names))
    assert page.count("<script") == 2
    assert "<b>\n" not in page
    assert "<bdi>&lt;script&gt;alert(1)&lt;/script&gt;</bdi>" in page
    assert "<bdi>שושנה</bdi>" in page
    assert "<bdi>$title</bdi>" in page


def test_a_name_that_is_no_text_can_be_written(tmp_path):
    write_run(tmp_path)
    (tmp_path / "skipped.jsonl").write_text('{"file": "roses/\\udcff.jpg", "reason": "not a picture"}\n')
    assert "roses/\\udcff.jpg" in page_of(tmp_path)


def test_numbers_that_are_not_finite_leave_gaps(tmp_path):
    write_run(tmp_path)
    (tmp_path / "history.json").write_text('{"loss": [0.5, null, NaN], "val_loss": [null, null, null]}')
    with open(tmp_path / "readings.jsonl", "a") as file:
        file.write(json.dumps({"time": BEGUN + 800, "loss": float("nan"), "learning_rate": float("inf")}) + "\n")
    assert charts_of(tmp_path)["history-loss"].series[0].values == [0.5, None, None]
    page_of(tmp_path)


def test_many_readings_become_few_points_and_no_peak_is_lost():
    count = 30_000
    spiked = ({**one, "peak_bytes": 9_000_000_000} if i == 23_777 else one for i, one in enumerate(readings(count)))
    tracemalloc.start()
    found = thin_readings(spiked)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert MAX_POINTS // 2 < len(found.points) <= MAX_POINTS
    assert sum(point.num_readings for point in found.points) == count
    assert found.peak_bytes == 9_000_000_000
    assert [point.peak_bytes for point in found.points].count(9_000_000_000) == 1
    assert found.points[-1].peak_bytes == PEAK_BYTES
    assert found.seconds == pytest.approx(715, abs=0.1)
    assert found.pictures_per_second == pytest.approx(400.5, abs=1)
    assert most < 2_000_000


def test_the_time_between_a_stop_and_going_on_does_not_count(tmp_path):
    write_run(tmp_path, without=["readings.jsonl"])
    times = [BEGUN, BEGUN + 10, BEGUN + 5000, BEGUN + 5010]
    (tmp_path / "readings.jsonl").write_text("".join(json.dumps({"time": time, "loss": 1.0}) + "\n" for time in times))
    assert fitroom.open_run(tmp_path).readings.seconds == 5010
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"time": "2023-11-14T23:30:00+0000", "kind": "resumed", "message": "going on"}\n')
    run = fitroom.open_run(tmp_path)
    assert run.readings.seconds == run.seconds == 20


def test_learning_rate_and_speed_are_drawn_over_steps(tmp_path):
    charts = charts_of(write_run(tmp_path))
    for key in ("learning-rate", "speed"):
        assert charts[key].across == "update"
        assert (charts[key].at[0], charts[key].at[-1]) == (0, 229)
    assert charts["memory"].across == "seconds"


def test_the_page_says_where_the_time_went(tmp_path):
    write_run(tmp_path)
    (tmp_path / "times.json").write_text('{"planning": 31.0, "evaluating": 12.0}')
    page = page_of(tmp_path)
    table = page[page.index("Where the time went") :]
    found = re.findall(r'<th scope="row">(\w+)</th>.*?<td>([^<]*)</td></tr>', table)[:5]
    assert found == [
        ("planning", "31 seconds"),
        ("compiling", "40 seconds"),
        ("training", "8 minutes"),
        ("validating", "1 minute"),
        ("evaluating", "12 seconds"),
    ]


def test_one_card_is_named_once_and_another_is_told(tmp_path):
    write_run(tmp_path)
    estimate = replace(step_estimate(), gpu="H200")
    (tmp_path / "estimate.json").write_text(json.dumps(estimate.to_dict(with_timeline=True)))
    job = json.loads((tmp_path / "job.json").read_text())
    for device, is_told in (("NVIDIA H200", False), ("NVIDIA L4", True)):
        (tmp_path / "job.json").write_text(json.dumps(job | {"device": device}))
        assert ("the prediction is for H200" in page_of(tmp_path)) == is_told


def test_the_step_is_stacked_by_kind_with_limit_and_measured_peak(tmp_path):
    chart = charts_of(write_run(tmp_path))["step"]
    totals = [sum(values) for values in zip(*(series.values for series in chart.series), strict=True)]
    assert max(totals) == step_estimate().peak_bytes
    assert [mark["name"] for mark in chart.marks] == ["limit 8.00 GiB", "measured peak 7.41 GiB"]
    assert [band["name"] for band in chart.bands] == ["forward", "backward", "update"]
    assert (chart.at[0], chart.at[-1]) == (0, 100)
    assert len(chart.at) == len(chart.labels) == len(totals)


def test_the_page_stays_small_with_many_classes_a_long_step_and_large_pictures(tmp_path):
    write_run(tmp_path, classes=[f"{number} " + "n" * 60 for number in range(1000)], num_readings=5000)
    estimate = estimate_of(long_timeline(30_000))
    (tmp_path / "estimate.json").write_text(json.dumps(estimate.to_dict(with_timeline=True)))
    results = json.loads((tmp_path / "results.json").read_text())
    for sample in results["samples"]:
        sample["thumbnail"] = "data:image/jpeg;base64," + "A" * 100_000
    (tmp_path / "results.json").write_text(json.dumps(results))
    page = page_of(tmp_path)
    assert len(page.encode()) < 1_500_000
    assert len(charts_of(tmp_path)["step"].at) == MAX_STEP_COLUMNS + 1
    assert "the whole matrix has no room" in page


def test_the_library_of_charts_is_the_one_that_is_named():
    readme = (ASSETS / "vendor" / "README.md").read_text()
    code = (ASSETS / "vendor" / "chart.umd.min.js").read_bytes()
    assert hashlib.sha256(code).hexdigest() in readme
    version = re.search(rb"Chart\.js v([\d.]+)", code)
    assert version
    assert f"| {version[1].decode()} |" in readme
    for licence in re.findall(r"`([\w.-]+-LICENSE\.md)`", readme):
        assert "MIT" in (ASSETS / "vendor" / licence).read_text()


def test_in_a_notebook_a_run_and_its_report_show_themselves(tmp_path):
    run = fitroom.open_run(write_run(tmp_path, classes=["<b>", "b", "c"]))
    assert "held-out images" in run._repr_html_()
    report = run.report()
    assert report.path == tmp_path / "report.html"
    shown = report._repr_html_()
    assert shown.startswith("<p>Trained: ")
    assert shown.count("<iframe") == 1
    assert 'sandbox="allow-scripts"' in shown
    assert "<script" not in shown, "the page stands in an attribute, escaped"


def test_in_a_notebook_an_estimate_shows_verdict_sizes_kinds_and_layers():
    estimate = step_estimate()
    shown = estimate._repr_html_()
    for text in ("fits: ", "Xception, batch 256", "needs at least", "activations", "Biggest layers", "block1_conv"):
        assert text in shown
    assert "block9_batch_norm" not in shown
    assert "<script" not in shown


def test_in_a_notebook_names_of_layers_are_only_names():
    timeline = long_timeline(3)
    moments = [["op", None, None]] * 3
    data = {"buffers": [[10, "weights", "<img src=x onerror=alert(1)>", 0, 2]], "moments": moments}
    shown = estimate_of(type(timeline).from_dict(data))._repr_html_()
    assert "<img" not in shown
    assert "&lt;img src=x" in shown
