"""The exact text of an estimate in a terminal, at fixed widths and without colour."""

import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from fitroom.memory.timeline import Buffer, Moment, Timeline
from fitroom.recipe import Recipe
from fitroom.report.estimate.comparison import Refusal, render_comparison
from fitroom.report.estimate.text import render_estimate_text
from sample_estimates import GIB, MIB, estimate_of, estimate_of_layers, small_estimate
from shown_text import shown

AT_100_COLUMNS = """\
TinyNet, batch 8, float32, JAX on NVIDIA L4
fits: 6.25 GiB of 16.00 GiB

Memory
  peak               5.00 GiB  the most in use at once during a training step
  needs at least     6.25 GiB  the allocator limit that holds the step
  takes of the card  6.75 GiB  what must be free on it when training starts, CUDA included

Peak by kind
  activations   3.25 GiB  65.0 %  ████████████████████████████████████████
  weights      512.0 MiB  10.0 %  ██████▏
  optimizer    512.0 MiB  10.0 %  ██████▏
  gradients    448.0 MiB   8.8 %  █████▍
  input        256.0 MiB   5.0 %  ███▏
  workspace     64.0 MiB   1.2 %  ▊

Peak by layer
  stem            3.00 GiB  60.0 %  ████████████████████████████████████████
  head            1.69 GiB  33.8 %  ██████████████████████▌
  (input batch)  256.0 MiB   5.0 %  ███▍
  (no layer)      64.0 MiB   1.2 %  ▉

Peak within each phase
  forward   4.50 GiB   90.0 %  ████████████████████████████████████
  backward  5.00 GiB  100.0 %  ████████████████████████████████████████
  update    1.44 GiB   28.8 %  ███████████▌
  where the peak is: head, backward

How it was found
  compiled: XLA's own compiler laid out this step for the card. Typical error of the peak: 0.03 %.
  took 2.3 s
  with jax 0.9.0, keras 3.12.0

Notes
  - The loss was chosen for the model: it has none of its own.
"""

AT_44_COLUMNS_IN_ASCII = """\
TinyNet, batch 8, float32, JAX on NVIDIA L4
fits: 6.25 GiB of 16.00 GiB

Memory
  peak               5.00 GiB
  needs at least     6.25 GiB
  takes of the card  6.75 GiB

Peak by kind
  activations   3.25 GiB  65.0 %  ##########
  weights      512.0 MiB  10.0 %  ##
  optimizer    512.0 MiB  10.0 %  ##
  gradients    448.0 MiB   8.8 %  #
  input        256.0 MiB   5.0 %  #
  workspace     64.0 MiB   1.2 %

Peak by layer
  stem            3.00 GiB  60.0 %  ########
  head            1.69 GiB  33.8 %  ####
  (input batch)  256.0 MiB   5.0 %  #
  (no layer)      64.0 MiB   1.2 %

Peak within each phase
  forward   4.50 GiB   90.0 %  ############
  backward  5.00 GiB  100.0 %  #############
  update    1.44 GiB   28.8 %  ####
  where the peak is: head, backward

How it was found
  compiled: XLA's own compiler laid out this
  step for the card. Typical error of the
  peak: 0.03 %.
  took 2.3 s
  with jax 0.9.0, keras 3.12.0

Notes
  - The loss was chosen for the model: it
    has none of its own.
"""

MANY_LONG_LAYERS_OF_UNKNOWN_PHASE = """\
TinyNet, batch 8, float32, JAX on NVIDIA L4
fits: 243.8 MiB of 16.00 GiB

Memory
  peak               195.0 MiB  the most in use at once during a training step
  needs at least     243.8 MiB  the allocator limit that holds the step
  takes of the card  755.8 MiB  what must be free on it when training starts,
                                CUDA included

Peak by kind
  activations  195.0 MiB  100.0 %  ████████████████████████████████████████

Peak by layer
  model/stage_…mber_0/attention/query_projection_dense  20.0 MiB  10.3 %  ██████
  model/stage_…mber_1/attention/query_projection_dense  19.0 MiB   9.7 %  █████▊
  model/stage_…mber_2/attention/query_projection_dense  18.0 MiB   9.2 %  █████▍
  model/stage_…mber_3/attention/query_projection_dense  17.0 MiB   8.7 %  █████▏
  model/stage_…mber_4/attention/query_projection_dense  16.0 MiB   8.2 %  ████▊
  model/stage_…mber_5/attention/query_projection_dense  15.0 MiB   7.7 %  ████▌
  model/stage_…mber_6/attention/query_projection_dense  14.0 MiB   7.2 %  ████▎
  model/stage_…mber_7/attention/query_projection_dense  13.0 MiB   6.7 %  ███▉
  model/stage_…mber_8/attention/query_projection_dense  12.0 MiB   6.2 %  ███▋
  model/stage_…mber_9/attention/query_projection_dense  11.0 MiB   5.6 %  ███▎
  model/stage_…ber_10/attention/query_projection_dense  10.0 MiB   5.1 %  ███
  model/stage_…ber_11/attention/query_projection_dense   9.0 MiB   4.6 %  ██▊
  … and 3 more layers                                   21.0 MiB  10.8 %

Peak within each phase
  unknown: the compiler does not tell which operation is in which phase
  where the peak is: operation fusion.1

How it was found
  compiled: XLA's own compiler laid out this step for the card. Its typical
  error has not been measured.
  took 2.3 s
"""

BACKENDS_BY_BATCH_SIZES = """\
TinyNet, float32 on NVIDIA L4

         JAX
 batch   limit 6.50 GiB             PyTorch
 ──────────────────────────────────────────────────
     8     6.25 GiB  fits           no estimate [1]
    16    11.00 GiB  does NOT fit   no estimate [1]
    32   no estimate [2]            -

What each step needs at least, and whether that is within the limit.
  - The loss was chosen for the model: it has none of its own.
[1] PyTorch is not installed.
[2] The compiler was killed: 32 [samples] took more than this machine has.
"""


def test_print_shows_what_a_terminal_shows():
    assert str(small_estimate()) + "\n" == AT_100_COLUMNS


def long_path(stage: int) -> str:
    return f"model/stage_{stage}/transformer_block_number_{stage}/attention/query_projection_dense"


def table_rows() -> list[object]:
    estimate = replace(small_estimate(), limit_bytes=6 * GIB + 512 * MIB)
    killed = "The compiler was killed: 32 [samples] took more than this machine has."
    return [
        estimate,
        replace(estimate, batch_size=16, peak_bytes=10 * GIB, required_bytes=11 * GIB),
        Refusal(backend="torch", batch_size=8, reason="PyTorch is not installed."),
        Refusal(backend="torch", batch_size=16, reason="PyTorch is not installed."),
        Refusal(backend="jax", batch_size=32, reason=killed),
    ]


def test_whole_estimate_at_100_columns():
    assert shown(render_estimate_text(small_estimate()), width=100) == AT_100_COLUMNS


def test_narrow_terminal_without_block_characters():
    assert shown(render_estimate_text(small_estimate()), width=44, encoding="ascii") == AT_44_COLUMNS_IN_ASCII


def test_long_layers_are_cut_in_the_middle_and_the_smallest_are_summed():
    estimate = estimate_of_layers({long_path(stage): (20 - stage) * MIB for stage in range(15)})
    assert shown(render_estimate_text(estimate)) == MANY_LONG_LAYERS_OF_UNKNOWN_PHASE


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal_in_any_encoding(width, encoding):
    layers = {long_path(stage): (20 - stage) * GIB for stage in range(15)} | {"层/[bold]é": MIB, "x": 1}
    text = shown(render_estimate_text(estimate_of_layers(layers)), width, encoding)
    assert max(map(len, text.splitlines())) <= width
    assert ("█" in text) == (encoding == "utf-8" and width >= 60)
    shown(render_comparison(table_rows()), width, encoding)


def test_names_are_never_taken_for_markup():
    text = shown(render_estimate_text(estimate_of_layers({"[red]dense[/red]": MIB, ":rocket:": MIB})))
    assert "[red]dense[/red]  1.0 MiB" in text
    assert ":rocket:" in text


def test_what_does_not_fit_is_said_with_the_missing_bytes():
    text = shown(render_estimate_text(replace(small_estimate(), limit_bytes=6 * GIB)))
    assert "does NOT fit: needs 6.25 GiB, 256.0 MiB more than the limit of 6.00 GiB\n" in text


def test_a_phase_without_operations_is_unknown_and_not_zero():
    timeline = Timeline(
        buffers=(Buffer(size_bytes=3 * MIB, kind="weights", layer="dense", first=0, last=1),),
        moments=(Moment(name="a", layer="dense", phase="forward"), Moment(name="b", layer=None, phase=None)),
    )
    text = shown(render_estimate_text(estimate_of(timeline)), width=60)
    assert (
        "  forward   3.0 MiB  100.0 %  ██████████████████████████████\n  backward  unknown\n  update    unknown\n"
        in text
    )
    text = shown(render_estimate_text(replace(estimate_of(timeline), training=False)), width=60)
    assert "forward  3.0 MiB" in text
    assert "unknown" not in text, "predict only goes forward"
    assert "TinyNet, predict, batch 8" in text
    assert "during a step of predict" in text


def test_a_step_that_holds_nothing_can_be_shown():
    empty = Timeline(buffers=(), moments=(Moment(name="a", layer=None, phase=None),))
    assert "Peak by kind\n  nothing is in use\n" in shown(render_estimate_text(estimate_of(empty)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "traced", "typical_error": 0.012}, "traced: every tensor of the step was followed from allocation"),
        ({"method": "traced", "typical_error": 0.012}, "Typical error of the peak: 1.2 %."),
        ({"typical_error": 0.0}, "Typical error of the peak: under 0.01 %."),
        ({"method": "measured", "typical_error": None}, "and the framework's allocator was read.\n"),
        ({"seconds": 130.0}, "took 2 min 10 s\n"),
        ({"recipe": Recipe(precision="mixed_bfloat16", jit=False)}, "batch 8, float32, jit=False, JAX on NVIDIA L4\n"),
    ],
)
def test_method_time_and_recipe_in_words(changes, words):
    assert words in shown(render_estimate_text(replace(small_estimate(), **changes)), width=160)


def test_table_shows_need_verdict_and_each_reason_once():
    assert shown(render_comparison(table_rows())) == BACKENDS_BY_BATCH_SIZES


def test_table_of_refusals_alone():
    rows = [row for row in table_rows() if isinstance(row, Refusal) and row.backend == "torch"]
    assert shown(render_comparison(rows)) == (
        "\n batch   PyTorch\n ───────────────────────\n     8   no estimate [1]\n    16   no estimate [1]\n\n"
        "[1] PyTorch is not installed.\n"
    )


def test_estimates_of_different_cards_are_not_laid_over_each_other():
    text = shown(render_comparison([small_estimate(), replace(small_estimate(), gpu="NVIDIA T4", required_bytes=GIB)]))
    assert text.index("TinyNet, float32 on NVIDIA L4") < text.index("6.25 GiB")
    assert text.index("6.25 GiB") < text.index("TinyNet, float32 on NVIDIA T4") < text.index("1.00 GiB")


def test_colour_carries_nothing_that_the_words_do_not():
    file = StringIO()
    Console(file=file, width=100, force_terminal=True, color_system="truecolor").print(
        render_estimate_text(small_estimate())
    )
    without_colour = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())
    assert without_colour != file.getvalue()
    assert [line.rstrip() for line in without_colour.splitlines()] == AT_100_COLUMNS.splitlines()


def test_table_says_of_which_estimates_a_note_holds():
    plain = small_estimate()
    noted = replace(plain, batch_size=16, notes=(*plain.notes, "XLA recomputes."))
    text = shown(render_comparison([plain, noted]))
    assert "batch 16: XLA recomputes." in text
    assert text.count("The loss was chosen") == 1
