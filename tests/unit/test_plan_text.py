"""The exact text of a plan in a terminal, at fixed widths and without colour."""

import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from rich.console import Console

from fitroom.budget import Budget
from fitroom.cards.catalogue import find_card
from fitroom.planning.cards import CardPlan
from fitroom.planning.option import Speed
from fitroom.planning.result import Plan
from fitroom.recipe import Recipe
from fitroom.report.notebook import render_plan
from fitroom.report.plan.cards import render_cards_table
from fitroom.report.plan.text import render_plan_text
from fitroom.report.plan.words import select_options
from fitroom.report.save import save_plan
from fitroom.report.shared.sheet import render_plain
from sample_estimates import GIB
from sample_plans import RECOMPUTED, ROUNDED, cut_to, option_of, sample_plan
from shown_text import shown

SVG = "{http://www.w3.org/2000/svg}"

AT_100_COLUMNS = """\
TinyNet, batch 256, JAX on NVIDIA L4, 8.00 GiB for training
fits with whole batches, float32, 1 segment recomputed

Memory
  peak            5.00 GiB   62.5 %  █████████████████████████
  needs at least  6.25 GiB   78.1 %  ███████████████████████████████▎
  stays free      1.75 GiB   21.9 %  ████████▊
  budget          8.00 GiB  100.0 %  ████████████████████████████████████████
  A reserve of at least 245.8 MiB stays free.

Speed
  400 samples a second, 0.64 s a step of 256, predicted, not measured

What it changes about the result
  recomputed  none → 1 segment  changes nothing

Why
  The fastest recipe that fits into 8 GiB keeps the batch whole and computes one segment again;
  without that it would take 20 GiB.

Alternatives
     micro-                  needs   samples
      batch  recomputed   at least  a second  changes  memory is     fits
        256  nothing     20.00 GiB       500  nothing  interpolated  no
  ▸     256  1 segment    6.25 GiB       400  nothing  confirmed     yes
        256  blocks       4.00 GiB       350  nothing  interpolated  yes
  and 1 more: --all-recipes shows them, plan.frontier has them

If memory runs out anyway
  blocks recomputed with whole batches; then blocks recomputed with micro-batch 128; then blocks
  recomputed with micro-batch 64

Notes
  - The card was not here: its speed is from its datasheet.
"""

CHOICE_AT_60_COLUMNS_IN_ASCII = """\
Alternatives
    micro-                 needs  samples
     batch recomputed   at least a second changes fits
       256 nothing    ~20.00 GiB      500 nothing no
  *    256 1 segment    6.25 GiB      400 nothing yes
       256 blocks      ~4.00 GiB      350 nothing yes
  and 1 more: --all-recipes shows them, plan.frontier has
  them
  ~ is interpolated, the others are confirmed
"""

CHOICE_AT_44_COLUMNS = """\
Alternatives
  - whole batches, float32
    20.00 GiB (interpolated), 500 samples a
    second, changes nothing, does NOT fit
  ▸ whole batches, float32, 1 segment
  recomputed
    6.25 GiB (confirmed), 400 samples a
    second, changes nothing, fits
"""

CARDS_AT_80_COLUMNS = """\
tiny, batch 256, float32
2 of 3 cards can, the smallest is T4, the smallest with whole batches H200

                                                                    samples
card              memory        recipe                             a second
GTX 1060 3GB    3.00 GiB  no    nothing fits in 2.21 GiB
T4             15.00 GiB  fits  micro-batch 64, blocks recomputed       300
H200          140.40 GiB  fits  whole batches                           500
"""


def long_frontier() -> Plan:
    """All even parts of a batch of 100, in 1 GiB a sample; micro-batch 10 is the chosen one."""
    sizes = sorted({-(-100 // parts) for parts in range(1, 101)}, reverse=True)
    recipes = [Recipe(micro_batch=size, precision="mixed_bfloat16") for size in sizes]
    frontier = [option_of(recipe, recipe.micro_batch * GIB, 100.0, ROUNDED, cut_to(10)) for recipe in recipes]
    chosen = Recipe(micro_batch=10, precision="mixed_bfloat16")
    return sample_plan(recipe=chosen, micro_batch=10, frontier=tuple(frontier), batch_size=100)


def test_whole_plan_at_100_columns_in_a_terminal_and_by_print():
    assert shown(render_plan_text(sample_plan()), width=100) == AT_100_COLUMNS
    assert str(sample_plan()) + "\n" == AT_100_COLUMNS


def test_colour_carries_nothing_that_the_words_do_not():
    file = io.StringIO()
    Console(file=file, width=100, force_terminal=True, color_system="truecolor").print(sample_plan())
    without_colour = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())
    assert without_colour != file.getvalue()
    assert [line.rstrip() for line in without_colour.splitlines()] == AT_100_COLUMNS.splitlines()


def test_the_choice_is_brief_in_a_narrow_terminal_and_in_words_in_a_narrower_one():
    assert CHOICE_AT_60_COLUMNS_IN_ASCII in shown(render_plan_text(sample_plan()), width=60, encoding="ascii")
    assert CHOICE_AT_44_COLUMNS in shown(render_plan_text(sample_plan()), width=44)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("width", [24, 40, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal_in_any_encoding(width, encoding):
    for plan in (sample_plan(model="层/[bold]é"), long_frontier()):
        assert max(map(len, shown(render_plan_text(plan), width, encoding).splitlines())) <= width


def test_every_kind_of_recipe_has_a_column_where_it_differs():
    options = (
        option_of(Recipe(precision="float32", jit=False), 7 * GIB, 90.0),
        option_of(Recipe(precision="mixed_bfloat16", jit=True, micro_batch=32), 3 * GIB, None, ROUNDED, cut_to(32)),
    )
    text = render_plain(render_plan_text(sample_plan(frontier=options), all_recipes=True))
    assert "  batch  precision       jit     at least  a second  changes" in text
    assert " 32  mixed_bfloat16  jit     3.00 GiB   unknown  rounding, statistics  interpolated  yes" in text
    assert "recomputed   at least" not in text


def test_the_chosen_recipe_stands_between_its_neighbours_and_the_next_fallback():
    plan = replace(long_frontier(), fallbacks=(Recipe(micro_batch=5, precision="mixed_bfloat16"),))
    rows = r"^  [▸ ] +(\d+) +\d+\.00 GiB"
    shown_rows = re.findall(rows, str(plan), re.MULTILINE)
    assert shown_rows == ["12", "10", "9", "5"]
    assert f"and {len(plan.frontier) - 4} more: --all-recipes" in str(plan)
    assert len(re.findall(rows, render_plain(render_plan_text(plan, all_recipes=True)), re.MULTILINE)) == len(
        plan.frontier
    )


def test_what_keeps_the_batch_whole_and_what_was_passed_over_are_shown():
    plan = long_frontier()
    whole = replace(option_of(Recipe(remat="blocks"), 5 * GIB, 50.0, RECOMPUTED), micro_batch=plan.batch_size)
    passed = option_of(Recipe(micro_batch=34, remat="blocks", precision="mixed_bfloat16"), 7 * GIB, 101.0, ROUNDED)
    frontier = (*plan.frontier[:2], passed, *plan.frontier[2:14], whole, *plan.frontier[14:])
    found = select_options(replace(plan, frontier=frontier))
    assert passed in found
    assert whole in found


def test_a_plan_that_changes_nothing_says_so():
    text = str(sample_plan(recipe=Recipe(), changes=(), frontier=(), fallbacks=(), notes=()))
    assert "fits as it is: whole batches, float32\n" in text
    assert "\n  nothing: every knob stays as the model has it\n" in text
    assert not any(heading in text for heading in ("choose from", "If memory runs out", "Notes"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"speed": None}, "Speed\n  unknown: the layers form no graph"),
        (
            {"speed": Speed(seconds_per_step=250.4, samples_per_second=1.0224, method="measured")},
            "1.02 samples a second, 4 min 10 s a step of 256, measured on the card",
        ),
        (
            {"recipe": Recipe(micro_batch=100, precision="mixed_float16", optimizer="lion", image_size=96, jit=True)},
            "fits with micro-batch 86, mixed_float16, jit, lion, 96 x 96 pixels\n",
        ),
        ({"budget": Budget(bytes=8 * GIB, source="RTX 3060: 9 GiB less 1")}, "  RTX 3060: 9 GiB less 1. A reserve of "),
        ({"changes": (RECOMPUTED, cut_to(86))}, "micro-batch  256 → 86          changes batch statistics\n"),
        ({"fallbacks": (Recipe(remat="blocks", micro_batch=9),)}, "anyway\n  blocks recomputed with micro-batch 9\n"),
    ],
)
def test_speed_recipe_budget_changes_and_fallbacks_in_words(changes, words):
    assert words in str(sample_plan(**changes)) + "\n"


def test_a_saved_plan_shows_as_it_did(tmp_path):
    plan = sample_plan()
    plan.save(tmp_path / "plan.json")
    assert str(Plan.load(tmp_path / "plan.json")) == str(plan)


def test_a_notebook_shows_verdict_figures_and_choice_with_names_escaped():
    html = render_plan(replace(sample_plan(), model="<b>Tiny</b>"))
    assert "&lt;b&gt;Tiny&lt;/b&gt;, batch 256" in html
    assert "<b>Tiny" not in html
    for words in ("fits with whole batches", "6.25 GiB", "400 samples a second", "blocks recomputed"):
        assert words in html


@pytest.mark.parametrize("suffix", ["svg", "png", "html"])
def test_a_plan_is_drawn_as_a_file_the_same_every_time(tmp_path, suffix):
    for name in ("one", "two"):
        save_plan(sample_plan(), tmp_path / f"{name}.{suffix}")
    start = {"svg": b"<?xml", "png": b"\x89PNG", "html": b"<!DOCTYPE html>"}[suffix]
    content = (tmp_path / f"one.{suffix}").read_bytes()
    assert content.startswith(start)
    assert content == (tmp_path / f"two.{suffix}").read_bytes()


def test_a_picture_names_the_plan_the_budget_and_the_groups_but_not_what_is_far_too_large(tmp_path):
    far = option_of(Recipe(), 25 * GIB, 900.0)
    save_plan(sample_plan(model="$Tiny$ <b>", frontier=(far, *sample_plan().frontier)), tmp_path / "plan.svg")
    texts = ["".join(each.itertext()) for each in ElementTree.parse(tmp_path / "plan.svg").iter(f"{SVG}text")]
    assert {"this plan", "recomputed", "does not fit", "budget 8.00 GiB", "samples a second"} <= set(texts)
    assert "$Tiny$ <b>, batch 256, JAX on NVIDIA L4, 8.00 GiB for training" in texts
    assert sorted(text for text in texts if text in ("256", "64")) == ["256", "256", "256", "64"]


def test_a_plan_without_speeds_or_alternatives_can_be_drawn(tmp_path):
    unknown = tuple(replace(option, speed=None) for option in sample_plan().frontier)
    save_plan(sample_plan(frontier=unknown, speed=None), tmp_path / "unknown.svg")
    assert "micro-batch" in (tmp_path / "unknown.svg").read_text()
    for suffix in ("svg", "html"):
        save_plan(sample_plan(frontier=(), budget=Budget(bytes=99 * GIB, source="given")), tmp_path / f"a.{suffix}")
        assert "99.00 GiB for training" in (tmp_path / f"a.{suffix}").read_text()


def test_cards_are_listed_by_memory_with_those_that_cannot():
    whole, *_, cut = sample_plan().frontier
    options = {"H200": whole, "GTX 1060 3GB": None, "T4": cut}
    plans = [
        CardPlan(
            card=find_card(name),
            budget=Budget.of(name, backend="jax"),
            option=option and replace(option, recipe=replace(option.recipe, precision="float32")),
            batch_size=256,
        )
        for name, option in options.items()
    ]
    text = shown(render_cards_table(plans, "tiny, batch 256"), width=80)
    assert text.startswith(CARDS_AT_80_COLUMNS)
