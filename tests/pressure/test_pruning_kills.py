"""A training that is pruned weight by weight is killed, and resumes with the masks that it had."""

from pathlib import Path

import pytest

from kills import trained
from processes import needs

SCRIPT = Path(__file__).parents[1] / "helpers" / "pruned_run.py"


@pytest.mark.parametrize(
    "backend", ["torch", *(pytest.param(name, marks=pytest.mark.slow) for name in ("jax", "tensorflow"))]
)
def test_killed_while_it_is_pruned_it_ends_bit_for_bit_the_same(backend, tmp_path):
    needs(backend)
    expected, _ = trained(tmp_path / "undisturbed", backend, script=SCRIPT)
    found, done = trained(tmp_path / "killed", backend, kills=1, seed=2, script=SCRIPT)
    assert done
    assert found == expected
    assert found["sparsity"] == pytest.approx(0.8, abs=0.01)
