"""The seconds of a step without a card: on made-up work, so that no framework is needed, and on real models."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from drawn_chains import NUM_CALLS, drawn_chain
from fitroom.cards.catalogue import all_cards, find_card
from fitroom.planning.roofline.step_time import CLASSES, FEATURES, StepTime, known_factors
from fitroom.planning.roofline.work import KINDS, Work
from fitroom.remat.segmentation import Segment

H200 = find_card("H200")
WAYS = [("jax", True), ("tensorflow", True), ("tensorflow", False), ("torch", False)]
PRECISIONS = ("float32", "mixed_bfloat16")
STEP = {"batch_size": 64, "micro_batch": 64, "precision": "float32", "jit": True}


def drawn_work(*, frozen=0):
    random = np.random.default_rng(0)
    kinds = np.eye(len(KINDS))[random.integers(0, len(KINDS), NUM_CALLS)]
    elements = kinds * random.integers(10**5, 10**7, (NUM_CALLS, 1))
    products = np.isin(KINDS, ("convolution", "matrix"))
    return Work(
        operations=elements * np.where(products, 500, 4),
        elements=elements,
        backward=np.array([0.0] * frozen + [2.0] * (NUM_CALLS - frozen)),
        weights=10**6,
        slots=2 * 10**6,
    )


def drawn_step_time(*, backend="jax", card=H200, work=None):
    return StepTime(work or drawn_work(), drawn_chain(0, branching=True), backend=backend, card=card)


@pytest.mark.parametrize(("backend", "jit"), WAYS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_more_samples_and_more_parts_take_longer(backend, jit, precision):
    step_time = drawn_step_time(backend=backend)
    seconds = [
        step_time.seconds(batch_size=size, micro_batch=size, precision=precision, jit=jit) for size in (8, 16, 64)
    ]
    assert seconds == sorted(seconds)
    assert 2 * seconds[0] > seconds[1], "a larger batch is no slower a sample"
    cut = [
        step_time.seconds(batch_size=64, micro_batch=size, precision=precision, jit=jit) for size in (64, 63, 32, 22, 1)
    ]
    assert all(larger < smaller for larger, smaller in itertools.pairwise(cut) if larger != smaller)
    assert cut[1] == cut[2], "63 at once and 32 at once both cut 64 into two"
    assert cut[0] < cut[1] < cut[3] < cut[4]


def test_a_micro_batch_larger_than_the_batch_is_the_batch():
    step_time = drawn_step_time()
    assert step_time.seconds(**STEP | {"micro_batch": 500}) == step_time.seconds(**STEP)


@pytest.mark.parametrize(("backend", "jit"), WAYS)
def test_half_the_bytes_are_no_slower_where_the_card_has_units_for_them(backend, jit):
    for card in all_cards():
        if card.bf16_flops and card.bf16_flops > card.fp32_flops:
            step_time = drawn_step_time(backend=backend, card=card)
            slow, fast = (step_time.seconds(**STEP | {"precision": each, "jit": jit}) for each in PRECISIONS)
            assert fast < slow, card.name


@pytest.mark.parametrize("segments", [[(0, 4)], [(1, 3), (5, NUM_CALLS)], [(0, NUM_CALLS)]])
def test_recomputing_adds_the_forward_pass_of_what_is_run_again_and_nothing_else(segments):
    segments = [Segment(start=start, stop=stop) for start, stop in segments]
    work, chain = drawn_work(), drawn_chain(0, branching=True)
    again = np.zeros(NUM_CALLS)
    for segment in segments:
        again[segment.start : segment.stop] = chain.recomputed_before(segment.stop)[segment.start :]
    once_more = replace(work, backward=work.backward + again)
    assert again.any()
    recomputing = drawn_step_time(work=work).seconds(**STEP, segments=segments)
    assert recomputing == pytest.approx(drawn_step_time(work=once_more).seconds(**STEP))


def test_what_is_frozen_before_all_that_is_trained_is_not_run_again():
    frozen = 4
    step_time = drawn_step_time(work=drawn_work(frozen=frozen))
    assert step_time.seconds(**STEP) < drawn_step_time().seconds(**STEP)
    assert step_time.seconds(**STEP, segments=[Segment(start=0, stop=frozen)]) == step_time.seconds(**STEP)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_card_that_is_faster_in_every_way_is_faster(precision):
    slow, fast = find_card("RTX 3060"), find_card("RTX 4090")
    seconds = [drawn_step_time(card=card).seconds(**STEP | {"precision": precision}) for card in (slow, fast)]
    assert seconds[0] > 1.5 * seconds[1]


def test_every_card_of_the_catalogue_has_an_answer_in_every_precision():
    for card in all_cards():
        for precision in (*PRECISIONS, "mixed_float16"):
            assert drawn_step_time(card=card).seconds(**STEP | {"precision": precision}) > 0


def test_speed_says_samples_a_second_and_how_it_is_known():
    speed = drawn_step_time().speed(**STEP)
    assert speed.seconds_per_step == drawn_step_time().seconds(**STEP)
    assert speed.samples_per_second == pytest.approx(64 / speed.seconds_per_step)
    assert speed.method == "roofline"


def test_there_is_a_factor_for_all_that_a_step_is_made_of():
    assert set(known_factors()) == {"jax", "tensorflow-jit", "tensorflow-graph", "torch", "torch-fused"}
    for classes in known_factors().values():
        assert set(classes) == set(CLASSES)
        for factors in classes.values():
            assert set(factors) == set(FEATURES)
            assert all(factor >= 0 for factor in factors.values())
