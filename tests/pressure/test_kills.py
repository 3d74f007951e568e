"""A run that is killed resumes as if nothing had happened. A few kills; benchmarks/faults/kill_runs.py does fifty."""

import pytest

from kills import trained
from processes import needs


@pytest.mark.parametrize(
    ("backend", "kills"),
    [("torch", 1), *(pytest.param(name, 2, marks=pytest.mark.slow) for name in ("jax", "tensorflow"))],
)
def test_killed_at_random_moments_it_ends_bit_for_bit_the_same(backend, kills, tmp_path):
    needs(backend)
    expected, _ = trained(tmp_path / "undisturbed", backend)
    found, done = trained(tmp_path / "killed", backend, kills=kills, seed=4)
    assert done
    assert found == expected
