"""Graphs of real models, what cutting them is worth, and what XLA makes of it."""

import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras import layers

import fitroom
from fitroom.cards.catalogue import find_card
from fitroom.estimating.remat_budget import trace_within_budget
from fitroom.keras_model.loading.source import ModelSource, load_model
from fitroom.keras_model.recompute import resident_bytes
from fitroom.memory.step import StepRequest
from fitroom.recipe import Remat
from fitroom.remat.chooser import SegmentChooser
from fitroom.remat.table import make_segment_table
from fitroom.report.segments.figure import draw_segments
from remat_cases import CASES, block, classifier


def names(model):
    return [call.name for call in SegmentChooser.of_model(model).graph.calls]


def test_models_within_models_are_opened_and_branches_run_one_after_the_other():
    assert names(CASES["nested backbone"].make()) == [
        *("rescaled", "backbone", "backbone/frozen_conv", "backbone/frozen_norm", "backbone/frozen_relu"),
        *("backbone/free_conv", "backbone/free_norm", "backbone/free_relu"),
        *("backbone/inner", "backbone/inner/conv", "backbone/inner/norm", "backbone/relu"),
        *("head_conv", "head_norm", "head_relu", "pool", "classes"),
    ]
    found = names(CASES["branches, activity regularizer"].make())
    assert found[:6] == ["wide0_conv", "wide0_norm", "wide0_relu", "narrow0", "pooled0", "joined0"]


def test_a_model_that_is_called_twice_stays_whole_and_its_calls_have_names_of_their_own():
    found = names(CASES["twice the same"].make())
    assert {"eyes", "eyes#2", "shared", "shared#2"} <= set(found)
    assert "eyes/eye" not in found


@pytest.mark.parametrize(
    ("name", "at_least"), [("xception", 2.2), ("densenet121", 4), ("inceptionv3", 2.2), ("nasnetmobile", 4)]
)
def test_blocks_of_ready_made_models_take_a_fraction_of_the_memory(name, at_least):
    choice = SegmentChooser.of_model(load_model(ModelSource(text=name)))
    segmentation = choice.choose("blocks")
    assert choice.chain.plain_peak_bytes > at_least * segmentation.peak_bytes
    assert segmentation.operations < 0.75 * choice.chain.operations.sum()
    table = make_segment_table(choice, segmentation, model=name, precision="float32", num_samples=2)
    assert table.peak_bytes == max(row.backward_bytes for row in table.rows)
    assert sum(row.num_calls for row in table.rows) == len(choice.graph.calls)
    assert choice.choose(Remat(segments=table.to_dict()["segments"])) == segmentation
    # What has few single tensors to cut at is cut through several.
    assert name != "nasnetmobile" or any(len(row.leaving) > 1 for row in table.rows)
    assert draw_segments(choice.graph, table).count("<circle") == len(choice.graph.calls)


def test_xception_takes_as_many_operations_and_bytes_as_is_known_of_it():
    chain = SegmentChooser.of_model(load_model(ModelSource(text="xception"))).chain
    assert 8.2e9 < chain.operations.sum() / 2 < 9.2e9  # multiplications with an addition each, at 299 pixels
    # XLA lays 15,262,428,488 bytes out for 64 pictures.
    assert chain.plain_peak_bytes * 64 == pytest.approx(15_262_428_488, rel=0.02)


def deep(size=32):
    def body(x):
        for number in range(6):
            x = block(x, f"block{number}", filters=16)
        return x

    return classifier(body, inputs=keras.Input((size, size, 3)))


def estimated(model, remat):
    return fitroom.estimate(model, 64, recipe=fitroom.Recipe(remat=remat), gpu="T4")


@pytest.mark.usefixtures("kernels_are_not_tried")
def test_an_estimate_says_what_remat_saves_and_fit_keeps_to_a_budget_as_it_does(tmp_path):
    model = deep()
    plain, blocks = estimated(model, None), estimated(model, "blocks")
    assert blocks.by_kind["activations"] < plain.by_kind["activations"] / 1.8
    budget = (plain.required_bytes + blocks.required_bytes) // 2
    within = estimated(model, fitroom.Remat(budget=budget))
    assert blocks.required_bytes < within.required_bytes <= budget
    assert within.recipe.remat.segments
    assert estimated(model, within.recipe.remat).peak_bytes == within.peak_bytes
    assert "recomputed in the backward pass" in " ".join(within.notes)
    x, y = np.zeros((64, 32, 32, 3), "float32"), np.zeros(64, "int32")
    recipe = fitroom.Recipe(remat=fitroom.Remat(budget=budget))
    fitroom.fit(model, x, y, batch_size=64, recipe=recipe, run_dir=tmp_path / "run", verbose=0)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert fitroom.Recipe(**facts["recipe"]) == within.recipe
    with pytest.raises(fitroom.InputError, match="The smallest possible is"):
        estimated(model, fitroom.Remat(budget=1_000_000))


def test_the_layer_of_an_open_model_is_cut_for_a_usual_size():
    model = deep(size=None)
    assert (
        SegmentChooser.of_model(model).choose("blocks").peak_bytes
        > SegmentChooser.of_model(deep()).choose("blocks").peak_bytes
    )


def test_precision_halves_what_is_kept():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        half = SegmentChooser.of_model(deep()).chain.needed_before[-1]
    finally:
        keras.config.set_dtype_policy("float32")
    assert half < 0.55 * SegmentChooser.of_model(deep()).chain.needed_before[-1]
    assert layers.Dense(1).compute_dtype == "float32"


def test_a_budget_is_used_up_where_a_framework_takes_more_than_the_search_counts_on():
    model = load_model(ModelSource(text="resnet50"))
    choice, resident = SegmentChooser.of_model(model), resident_bytes(model, 64)

    def counted_bytes(remat):
        return 64 * choice.choose(remat, 64, resident).peak_bytes + resident

    def with_more_beside(model, request):
        return SimpleNamespace(required_bytes=counted_bytes(request.recipe.remat) + 3 * counted_bytes("none") // 10)

    for share in (0.8, 0.9, 1.0):
        budget = int(share * counted_bytes("none"))
        request = StepRequest(batch_size=64, card=find_card("T4"), recipe=fitroom.Recipe(remat=Remat(budget=budget)))
        traced, _ = trace_within_budget(with_more_beside, model, request)
        assert 0.95 * budget <= traced.required_bytes <= budget
