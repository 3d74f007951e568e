"""The report of a run in a real Chromium: it opens, draws, answers the pointer, and stays within its width."""

import re
from pathlib import Path

import pytest

from browser_pages import COLOURS, HOSTILE, Opened
from fitroom.planning.option import Change
from fitroom.report.run.report import write_report
from sample_plans import sample_plan
from sample_runs import write_plain_run, write_run

ALL_SIDES = "[...document.querySelectorAll('canvas')].map(canvas => canvas.getBoundingClientRect().width)"


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    return write_report(write_run(tmp_path_factory.mktemp("run")))


@pytest.fixture(scope="module")
def hostile_report(tmp_path_factory) -> Path:
    turned = Change(knob="precision", before=HOSTILE[1], after=HOSTILE[2], effect=HOSTILE[0])
    plan = sample_plan(gpu=HOSTILE[0], changes=(turned,))
    return write_report(write_run(tmp_path_factory.mktemp("hostile"), classes=HOSTILE, plan=plan))


def test_it_opens_without_a_complaint_and_asks_for_nothing(browser, report):
    with Opened(browser, report) as opened:
        opened.page.wait_for_load_state("networkidle")
        assert opened.complaints == []
        assert [url for url in opened.requests if not url.startswith("data:image/")] == [report.as_uri()]
        assert "Trained: accuracy 90.7 % on 772 held-out images" in opened.page.inner_text("h1")


def test_every_chart_is_drawn_in_the_colours_of_its_series(browser, report):
    with Opened(browser, report) as opened:
        keys = opened.page.eval_on_selector_all("canvas", "all => all.map(one => one.dataset.chart)")
        assert keys == ["history-accuracy", "history-loss", "learning-rate", "speed", "step", "memory", "frontier"]
        for key in keys:
            assert len(opened.chart(key).evaluate(COLOURS)) > 5
        blue, red, activations, gradients = "68,119,170", "204,85,102", "102,204,238", "238,102,119"
        assert {blue, red} <= set(opened.chart("history-loss").evaluate(COLOURS))
        assert {activations, gradients} <= set(opened.chart("step").evaluate(COLOURS))


def test_pointing_at_a_chart_shows_the_values_there(browser, report):
    with Opened(browser, report) as opened:
        assert opened.tooltip("step") == {}
        opened.chart("step").hover()
        shown = opened.tooltip("step")
        assert re.fullmatch(r"block\d+_\w+, backward \(\d+ of 120\)", shown["title"][0])
        assert re.fullmatch(r" activations  \d\.\d\d GiB", shown["lines"][0])
        assert re.fullmatch(r"in use  \d\.\d\d GiB", shown["footer"][0])
        opened.chart("memory").hover()
        shown = opened.tooltip("memory")
        assert shown["lines"][1] == " peak since the previous reading  7.41 GiB"
        assert re.fullmatch(r"6 minutes, epoch \d, batch \d+, micro-batch 64", shown["title"][0])


def test_the_plan_shows_what_there_was_to_choose_from(browser, report):
    with Opened(browser, report) as opened:
        opened.chart("frontier").focus()
        for _ in range(3):
            opened.page.keyboard.press("ArrowRight")
        shown = opened.tooltip("frontier")
        assert shown["title"] == ["whole batches, float32, 1 segment recomputed"]
        assert shown["lines"] == [" this plan  400 / s"]


def test_arrow_keys_walk_along_a_chart(browser, report):
    with Opened(browser, report) as opened:
        opened.chart("history-accuracy").focus()
        opened.page.keyboard.press("ArrowRight")
        opened.page.keyboard.press("ArrowRight")
        shown = opened.tooltip("history-accuracy")
        assert shown["title"] == ["epoch 2"]
        assert shown["lines"] == [" training  56.7 %", " validation  59.7 %"]
        opened.chart("history-loss").focus()
        assert opened.tooltip("history-accuracy") == {}


def test_a_phone_shows_it_without_scrolling_sideways(browser, report, hostile_report, tmp_path):
    for page in (report, hostile_report, write_report(write_plain_run(tmp_path))):
        with Opened(browser, page, width=360, device_scale_factor=3, has_touch=True, is_mobile=True) as opened:
            assert opened.is_within_its_width
            assert all(250 < width < 360 for width in opened.page.evaluate(ALL_SIDES))
            for summary in opened.page.locator("summary").all():
                summary.click()
            assert opened.is_within_its_width


def test_dark_mode_changes_page_and_charts_while_it_is_open(browser, report):
    background = "getComputedStyle(document.body).backgroundColor"
    with Opened(browser, report, color_scheme="light") as opened:
        light = opened.page.evaluate(background), set(opened.chart("memory").evaluate(COLOURS))
        opened.emulate_media(color_scheme="dark")
        dark = opened.page.evaluate(background), set(opened.chart("memory").evaluate(COLOURS))
        assert light[0] == "rgb(244, 246, 248)"
        assert dark[0] == "rgb(18, 23, 29)"
        assert "255,143,156" in dark[1] - light[1]
        assert "204,85,102" in light[1] - dark[1]


def test_on_paper_it_is_light_and_whole(browser, report):
    with Opened(browser, report, width=720, color_scheme="dark") as opened:
        opened.emulate_media(media="print")
        assert opened.is_within_its_width
        assert not opened.page.locator("nav").is_visible()
        assert all(section.is_visible() for section in opened.page.locator("section").all())
        assert opened.page.evaluate("getComputedStyle(document.querySelector('h2')).color") == "rgb(31, 41, 51)"
        assert "204,85,102" in opened.chart("memory").evaluate(COLOURS)
        assert opened.page.pdf().startswith(b"%PDF")


def test_a_screen_reader_finds_landmarks_headings_and_words_for_every_picture(browser, report):
    with Opened(browser, report) as opened:
        page = opened.page
        for role in ("banner", "main", "navigation", "contentinfo"):
            assert page.get_by_role(role).count() == 1
        assert page.get_by_role("heading", level=1).count() == 1
        assert page.get_by_role("region", name="Mistakes").count() == 1
        assert page.get_by_role("img", name=re.compile("^Loss. Training: from 1.58 to 0.212,")).count() == 1
        assert page.locator("img:not([alt])").count() == 0
        assert page.locator("th:not([scope])").count() == 0
        roses = page.locator(".matrix").get_by_role("row", name=re.compile("^roses"))
        assert roses.get_by_role("cell").all_inner_texts() == ["6", "1", "140", "7", "2"]
        assert page.locator("nav a").evaluate_all("all => all.every(one => document.querySelector(one.hash))")


def test_a_chart_has_its_figures_as_a_table(browser, report):
    with Opened(browser, report) as opened:
        figure = opened.page.locator("figure.chart", has=opened.chart("history-accuracy"))
        figure.locator("summary").click()
        row = figure.get_by_role("row", name=re.compile("^epoch 10"))
        assert row.get_by_role("cell").all_inner_texts() == ["94.0 %", "89.4 %"]


def test_hostile_names_are_text_and_nothing_else(browser, hostile_report):
    with Opened(browser, hostile_report) as opened:
        page = opened.page
        assert opened.complaints == []
        assert page.evaluate("window.hit") is None
        assert page.evaluate("document.scripts.length") == 2
        rows = page.locator(".classes th[scope=row]").all_inner_texts()
        assert tuple(rows) == HOSTILE
        assert page.locator("#plan .texts td").all_inner_texts() == [f"{HOSTILE[1]} → {HOSTILE[2]}", HOSTILE[0]]


def test_a_script_that_got_in_all_the_same_would_not_run(browser, report, tmp_path):
    broken = tmp_path / "report.html"
    broken.write_text(report.read_text().replace("<main>", "<main><script>window.hit = 1</script>"))
    with Opened(browser, broken) as opened:
        assert opened.page.evaluate("window.hit") is None
        assert "Content Security Policy" in opened.complaints[0]
