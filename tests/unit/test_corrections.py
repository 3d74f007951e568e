"""Measured steps that correct estimates: kept by what they are steps of, and ignored where their file is damaged."""

from dataclasses import replace

import pytest

from fitroom.estimating.corrections import with_corrections
from fitroom.memory.corrections import MeasuredStep, correct, correction_key, load_steps, store_step
from fitroom.memory.estimate import Estimate
from fitroom.recipe import Recipe
from sample_estimates import small_estimate

CARD = "NVIDIA L4"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FITROOM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("FITROOM_NO_CACHE", raising=False)
    monkeypatch.delenv("FITROOM_NO_CORRECTIONS", raising=False)


def estimate(**changes):
    return replace(small_estimate(), layers_digest="ab12", **changes)


def key_of(found):
    return correction_key(found, CARD)


def measured(found, share):
    return MeasuredStep(predicted_bytes=found.peak_bytes, measured_bytes=round(found.peak_bytes * (1 + share)))


def test_a_measured_step_moves_peak_and_requirement_and_is_named():
    found = estimate()
    assert store_step(key_of(found), measured(found, 0.1), model="TinyNet")
    corrected = correct(found, key_of(found))
    added = corrected.peak_bytes - found.peak_bytes
    assert corrected.peak_bytes == pytest.approx(1.1 * found.peak_bytes, rel=1e-5)
    assert corrected.timeline.peak_bytes == corrected.peak_bytes
    assert corrected.required_bytes == found.required_bytes + added
    assert (corrected.uncorrected_bytes, corrected.correction) == (found.peak_bytes, pytest.approx(0.1, abs=1e-5))
    assert corrected.notes[-1] == "Corrected by a measured step: +10.0 %."
    again = Estimate.from_dict(corrected.to_dict(with_timeline=True))
    assert (again.uncorrected_bytes, again.layers_digest) == (found.peak_bytes, "ab12")


def test_a_requirement_gets_smaller_by_a_step_of_the_same_size_alone():
    found = estimate()
    store_step(key_of(found), measured(found, -0.1), model="TinyNet")
    assert correct(found, key_of(found)).required_bytes < found.required_bytes
    peak_bytes = found.peak_bytes
    larger = replace(found, peak_bytes=2 * peak_bytes, required_bytes=3 * peak_bytes, device_bytes=4 * peak_bytes)
    corrected = correct(larger, key_of(found))
    assert corrected.peak_bytes < larger.peak_bytes
    assert (corrected.required_bytes, corrected.device_bytes) == (larger.required_bytes, larger.device_bytes)


@pytest.mark.parametrize(
    "other",
    [
        {"layers_digest": "cd34"},
        {"precision": "mixed_bfloat16"},
        {"versions": {"keras": "3.99"}},
        {"method": "traced"},
        {"recipe": Recipe(remat="blocks")},
    ],
)
def test_a_step_of_another_kind_corrects_nothing(other):
    found = estimate(method="compiled")
    store_step(key_of(found), measured(found, 0.1), model="TinyNet")
    changed = replace(found, **other)
    assert correct(changed, key_of(changed)) == changed
    assert correction_key(found, "another card") != key_of(found)


def test_the_nearest_size_corrects_and_a_far_one_does_not():
    found = estimate()
    small, large = measured(found, 0.2), MeasuredStep(predicted_bytes=3 * found.peak_bytes, measured_bytes=3)
    large = replace(large, measured_bytes=round(large.predicted_bytes * 0.9))
    for step in (small, large):
        store_step(key_of(found), step, model="TinyNet")
    near_large = replace(found, peak_bytes=2 * found.peak_bytes)
    assert correct(near_large, key_of(found)).correction == pytest.approx(-0.1, abs=1e-4)
    far = replace(found, peak_bytes=20 * found.peak_bytes)
    assert correct(far, key_of(found)) == far


def test_a_step_of_the_same_size_replaces_the_one_before():
    found = estimate()
    for share in (0.1, 0.02):
        store_step(key_of(found), measured(found, share), model="TinyNet")
    [step], _ = load_steps(key_of(found))
    assert step.share == pytest.approx(0.02, abs=1e-4)


@pytest.mark.parametrize("text", ["", "[1]", '{"steps": [{"predicted_bytes": "1", "measured_bytes": 2}]}', "{" * 9999])
def test_a_damaged_file_is_ignored_with_a_word(tmp_path, text):
    found = estimate()
    store_step(key_of(found), measured(found, 0.1), model="TinyNet")
    [path] = (tmp_path / "corrections").iterdir()
    path.write_text(text)
    corrected = correct(found, key_of(found))
    assert corrected.peak_bytes == found.peak_bytes
    assert f"{path} cannot be read and was ignored" in corrected.notes[-1]
    assert store_step(key_of(found), measured(found, 0.1), model="TinyNet"), "the next measured step replaces it"
    assert correct(found, key_of(found)).correction is not None


def test_what_is_far_off_is_taken_for_a_mistake_and_off_means_off(tmp_path, monkeypatch):
    found = estimate()
    assert not store_step(key_of(found), measured(found, 0.8), model="TinyNet")
    monkeypatch.setenv("FITROOM_NO_CORRECTIONS", "1")
    assert not store_step(key_of(found), measured(found, 0.1), model="TinyNet")
    assert not (tmp_path / "corrections").exists()


def test_a_measured_estimate_is_kept_for_later_ones():
    found = estimate(method="compiled", backend="jax")
    on_card = replace(
        found, method="measured", predicted_with="compiled", uncorrected_bytes=found.peak_bytes,
        peak_bytes=round(1.05 * found.peak_bytes),
    )  # fmt: skip
    assert "Later estimates" in with_corrections(on_card).notes[-1]
    assert with_corrections(found).correction == pytest.approx(0.05, abs=1e-4)
    assert with_corrections(replace(found, devices=2)).correction is None
