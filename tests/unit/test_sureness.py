"""The error that an estimate shows is that of models like it, as far as enough of them were measured."""

import json
from dataclasses import replace

import pytest

from fitroom.estimating import sureness
from fitroom.memory.estimate import Estimate
from fitroom.report.estimate.words import format_method
from sample_estimates import small_estimate

GIB = 2**30


def cell(median):
    return {"cases": 7, "median": median, "percentile_95": 0.05}


@pytest.fixture
def table(tmp_path, monkeypatch):
    cells = {"all": cell(0.04), "over 4 GiB": cell(0.03), "attention": cell(0.02), "attention, over 4 GiB": cell(0.01)}
    path = tmp_path / "errors.json"
    path.write_text(json.dumps({"groups": {"torch": cells}}))
    monkeypatch.setattr(sureness, "_TABLE", path)
    sureness._groups.cache_clear()
    yield
    sureness._groups.cache_clear()


@pytest.mark.parametrize(
    ("kind", "peak_bytes", "median"),
    [
        ("attention", 5 * GIB, 0.01),
        ("attention", GIB, 0.02),
        ("convolutions", 5 * GIB, 0.03),
        ("convolutions", GIB, 0.04),
    ],
)
def test_the_most_specific_figures_are_shown(table, kind, peak_bytes, median):
    estimate = replace(small_estimate(), backend="torch", method="traced", peak_bytes=peak_bytes)
    found = sureness.with_seen_error(estimate, kind)
    assert found.typical_error == found.seen_error.median == median
    assert Estimate.from_dict(found.to_dict(with_timeline=True)).seen_error == found.seen_error
    assert format_method(found).endswith(f"95 % of 7 measured steps of {found.seen_error.of} were within 5 %.")


def test_what_was_not_measured_keeps_the_error_of_its_method(table):
    estimate = replace(small_estimate(), backend="jax", method="compiled", typical_error=0.07)
    assert sureness.with_seen_error(estimate, "attention") == estimate
    measured = replace(estimate, backend="torch", method="measured", typical_error=0.0)
    assert sureness.with_seen_error(measured, "attention") == measured


@pytest.mark.parametrize(
    ("backend", "method", "versions", "group"),
    [
        ("jax", "compiled", {"compiler": "jax-cuda13-pjrt 0.10.2", "jaxlib": "0.10.2"}, "jax"),
        ("jax", "compiled", {"compiler": "jax-cuda13-pjrt 0.11.2", "jaxlib": "0.10.2"}, "jax, other compiler"),
        ("jax", "traced", {"compiler": "jax-cuda13-pjrt 0.10.2", "jaxlib": "0.10.2"}, "jax, without jit"),
        ("tensorflow", "compiled", {"compiler": "jax-cuda12-pjrt 0.9.0", "tensorflow": "2.21.0"}, "tensorflow-jit"),
        (
            "tensorflow",
            "compiled",
            {"compiler": "jax-cuda13-pjrt 0.10.2", "tensorflow": "2.21.0"},
            "tensorflow-jit, other compiler",
        ),
        ("torch", "traced", {}, "torch"),
    ],
)
def test_steps_are_grouped_by_how_they_were_predicted(backend, method, versions, group):
    assert sureness.name_group(backend, method, versions) == group
