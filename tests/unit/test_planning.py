"""The planner's rules: without a framework where they need none, then on models of Keras."""

import pytest

from fitroom.errors import InputError, UnknownNameError
from fitroom.planning.candidates import FEW_SAMPLES, Candidate, PricedCandidate, choose_best, find_frontier
from fitroom.planning.memory_model import MemoryModel
from fitroom.planning.option import Change
from fitroom.planning.request import ALLOWABLE, KEEPABLE, parse_knobs
from fitroom.planning.result import Plan
from fitroom.planning.target import choose_target
from fitroom.planning.variant import Variant
from fitroom.recipe import Remat
from sample_estimates import GIB, small_timeline
from sample_plans import sample_plan

FLOAT32 = Variant(precision="float32")
BFLOAT16 = Variant(precision="mixed_bfloat16")
SEGMENTS = Remat(segments=[("stem", "head")])


def candidate(micro_batch=256, *, seconds=1.0, variant=FLOAT32, recomputes=False, counted_bytes=None):
    return Candidate(
        variant=variant,
        batch_size=256,
        micro_batch=micro_batch,
        remat=SEGMENTS if recomputes else "none",
        counted_bytes=counted_bytes or micro_batch * GIB // 10,
        seconds=seconds,
    )


def priced(one, *, fits=True, confirmed=False, effects=(), required_bytes=None):
    return PricedCandidate(
        candidate=one,
        required_bytes=required_bytes or one.counted_bytes,
        peak_bytes=one.counted_bytes,
        confirmed=confirmed,
        fits=fits,
        changes=tuple(Change(knob="x", before="a", after="b", effect=effect) for effect in effects),
    )


def test_the_fastest_of_those_that_fit_is_taken():
    too_large = priced(candidate(256, seconds=1.0), fits=False)
    fast, slow = priced(candidate(128, seconds=1.2)), priced(candidate(64, seconds=1.5))
    assert choose_best([slow, too_large, fast], protects_statistics=True) is fast
    assert choose_best([too_large], protects_statistics=True) is None


def test_of_two_that_are_about_as_fast_the_one_that_changes_less_is_taken():
    rounded = priced(candidate(256, seconds=1.0, variant=BFLOAT16), effects=["rounding"])
    same = priced(candidate(256, seconds=1.015), effects=["nothing"])
    slower = priced(candidate(256, seconds=1.05))
    assert choose_best([rounded, same, slower], protects_statistics=True) is same
    assert choose_best([rounded, slower], protects_statistics=True) is rounded


def test_few_samples_at_once_are_taken_only_where_nothing_larger_fits_or_speed_is_asked_for():
    few = priced(candidate(FEW_SAMPLES - 1, seconds=1.0))
    whole = priced(candidate(256, seconds=1.6, recomputes=True))
    assert choose_best([few, whole], protects_statistics=True) is whole
    assert choose_best([few, whole], protects_statistics=False) is few
    assert choose_best([few], protects_statistics=True) is few


def test_the_frontier_has_what_nothing_beats_in_memory_speed_and_changes():
    fast = priced(candidate(256, seconds=1.0), effects=["rounding"])
    beaten = priced(candidate(256, seconds=1.1, counted_bytes=30 * GIB), effects=["rounding"])
    milder = priced(candidate(256, seconds=1.2, counted_bytes=31 * GIB))
    alike = priced(candidate(128, seconds=1.3, counted_bytes=24 * GIB))
    small = priced(candidate(64, seconds=1.4), effects=["batch statistics"])
    assert find_frontier([small, beaten, alike, milder, fast]) == [fast, milder, alike, small]
    nearly = priced(candidate(100, seconds=1.35, counted_bytes=23 * GIB))
    assert nearly not in find_frontier([fast, milder, alike, nearly, small])
    proven = priced(nearly.candidate, confirmed=True)
    assert proven in find_frontier([fast, milder, alike, proven, small])


def test_memory_learns_a_line_and_uses_it_for_other_variants():
    memory = MemoryModel("jax")
    assert memory.required_bytes(candidate(100)) == candidate(100).counted_bytes, "the usual factor"
    for size in (16, 64):  # 2 GiB that do not grow, and 1.2 times what is counted
        memory.learn(candidate(size), required_bytes=2 * GIB + 12 * candidate(size).counted_bytes // 10, peak_bytes=GIB)
    expected = 2 * GIB + 12 * candidate(128).counted_bytes // 10
    assert memory.required_bytes(candidate(128)) == pytest.approx(expected, rel=1e-6)
    counted = memory.countable_bytes(FLOAT32, expected, recomputes=False)
    assert counted == pytest.approx(candidate(128).counted_bytes, rel=1e-3)
    other = memory.required_bytes(candidate(64, variant=BFLOAT16))
    assert 1.2 * candidate(64).counted_bytes < other < 2 * candidate(64).counted_bytes, "this model takes more"


def test_what_is_recomputed_has_a_line_of_its_own():
    memory = MemoryModel("torch")
    memory.learn(candidate(64), required_bytes=20 * GIB, peak_bytes=GIB)
    memory.learn(candidate(64, recomputes=True, counted_bytes=2 * GIB), required_bytes=3 * GIB, peak_bytes=GIB)
    assert memory.required_bytes(candidate(128, recomputes=True, counted_bytes=4 * GIB)) == 6 * GIB
    assert memory.required_bytes(candidate(32)) == pytest.approx(10 * GIB)


def test_on_jax_a_rest_of_another_size_has_a_line_of_its_own():
    """A second loop of the program takes more: here a fifth."""
    for backend, expected in (("jax", 12), ("torch", 10)):
        memory = MemoryModel(backend)
        for size, tenths in ((32, 10), (64, 10), (100, 12)):  # of a batch of 256
            taken_bytes = tenths * candidate(size).counted_bytes // 10
            memory.learn(candidate(size), required_bytes=taken_bytes, peak_bytes=taken_bytes)
        found = memory.required_bytes(candidate(60)) / candidate(60).counted_bytes
        assert found == pytest.approx(expected / 10, rel=0.05), backend


def test_knobs_are_spelled_either_way_and_others_are_refused():
    assert parse_knobs("keep", ["micro_batch", "Precision"], KEEPABLE) == {"micro_batch", "precision"}
    assert parse_knobs("allow", "image-size, optimizer", ALLOWABLE) == {"image_size", "optimizer"}
    with pytest.raises(UnknownNameError, match="precison") as refused:
        parse_knobs("keep", "precison", KEEPABLE)
    assert "precision" in refused.value.hint
    with pytest.raises(InputError):
        parse_knobs("keep", [3], KEEPABLE)


def test_a_card_and_a_size_together_are_that_card_capped():
    capped = choose_target("8GiB", "RTX 3060", "jax")
    assert capped.card.name == "RTX 3060"
    assert capped.budget.bytes == 8 * GIB
    beyond = choose_target("100GiB", "RTX 3060", "jax")
    assert beyond.budget.bytes < 12 * GIB
    assert "more than" in beyond.notes[0]
    assert choose_target("RTX 3060", None, "jax").budget == beyond.budget
    assert 0 < capped.usable_bytes < capped.budget.bytes


def test_a_plan_is_saved_and_loads_again(tmp_path):
    plan, file = sample_plan(), tmp_path / "plan.json"
    plan.save(file)
    again = Plan.load(file)
    assert again.to_dict() == plan.to_dict()
    assert again.recipe == plan.recipe or again.recipe.micro_batch == plan.micro_batch
    assert again.estimate.by_kind == plan.estimate.by_kind
    assert again.estimate.by_layer == plan.estimate.by_layer
    assert again.estimate.by_phase == plan.estimate.by_phase
    for text in ("{}", "no JSON", '{"schema_version": 99}'):
        file.write_text(text)
        with pytest.raises(InputError) as refused:
            Plan.load(file)
    assert "make the plan again" in refused.value.hint, "the last one is a plan, of another version"


def test_a_condensed_timeline_says_the_same_of_its_peak():
    timeline = small_timeline()
    short = timeline.condense()
    assert (short.by_kind(), short.by_layer(), short.by_phase()) == (
        timeline.by_kind(),
        timeline.by_layer(),
        timeline.by_phase(),
    )
    assert (short.peak_bytes, short.peak_layer) == (timeline.peak_bytes, timeline.peak_layer)
    assert len(short.moments) <= 3
