"""The page of a plan in a real Chromium: it draws what there is to choose from, and names what is pointed at."""

import re
from dataclasses import replace

import pytest

from browser_pages import COLOURS, HOSTILE, Opened
from fitroom.recipe import Recipe
from fitroom.report.save import save_plan
from sample_estimates import GIB
from sample_plans import ROUNDED, option_of, sample_plan


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "plan.html"
    save_plan(sample_plan(model=HOSTILE[0], notes=HOSTILE), path)
    return path


def test_it_draws_without_a_complaint_and_asks_for_nothing(browser, page):
    with Opened(browser, page) as opened:
        opened.page.wait_for_load_state("networkidle")
        assert opened.complaints == []
        assert opened.requests == [page.as_uri()]
        assert {"68,119,170", "31,41,51"} <= set(opened.chart("frontier").evaluate(COLOURS))
        assert opened.page.inner_text("h1") == "fits with whole batches, float32, 1 segment recomputed"


def test_the_pointer_and_the_arrow_keys_say_recipe_memory_and_changes(browser, page):
    with Opened(browser, page) as opened:
        opened.chart("frontier").focus()
        opened.page.keyboard.press("ArrowRight")
        shown = opened.tooltip("frontier")
        assert shown["title"] == ["micro-batch 64, float32, blocks recomputed"]
        assert shown["lines"] == [" recomputed  300 / s"]
        after = "canvas => Chart.getChart(canvas).tooltip.afterBody"
        details = ["needs 2.00 GiB, interpolated", "changes batch statistics"]
        assert opened.chart("frontier").evaluate(after) == details
        size = opened.chart("frontier").bounding_box()
        opened.chart("frontier").hover(position={"x": 0.95 * size["width"], "y": 0.3 * size["height"]})
        assert opened.tooltip("frontier")["lines"] == [" does not fit  500 / s"]


def test_names_are_text_and_a_phone_shows_it_without_scrolling_sideways(browser, page):
    with Opened(browser, page, width=360, has_touch=True, is_mobile=True) as opened:
        assert opened.page.evaluate("window.hit") is None
        assert re.match(re.escape(HOSTILE[0]), opened.page.inner_text(".kicker"))
        assert opened.page.locator("li").all_inner_texts() == list(HOSTILE)
        opened.page.locator("summary").click()
        assert opened.is_within_its_width


NOTEBOOK = """<!doctype html><style>
body { margin: 0; font: 14px sans-serif }
.output { margin-left: 90px }
.output th, .output td { white-space: nowrap; padding: .5em }
</style><div class="output">"""
"""As notebooks lay out an output: beside the prompt, and cells of tables in one line."""


@pytest.mark.parametrize("width", [1200, 500])
def test_in_a_notebook_a_plan_stays_within_the_width(browser, tmp_path, width):
    recipe = Recipe(micro_batch=86, precision="mixed_bfloat16", remat="blocks", optimizer="adafactor", image_size=160)
    options = [option_of(replace(recipe, frozen_layers=number), 2 * GIB, 245.0, ROUNDED) for number in (100, 101, 102)]
    plan = sample_plan(recipe=options[1].recipe, frontier=tuple(options), model="mobilenetv2_1.00_160" * 3)
    file = tmp_path / "notebook.html"
    file.write_text(f"{NOTEBOOK}{plan._repr_html_()}</div>", encoding="utf-8")
    with Opened(browser, file, width=width) as opened:
        assert opened.is_within_its_width
