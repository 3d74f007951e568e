"""`fitroom.fit` with a plan where memory really runs out."""

from concurrent.futures import ThreadPoolExecutor

from pressure import LIMIT_MB, SCRIPT, SUM_OF_NUMBERS, limited, trained
from processes import needs
from ready_process import run_forked


def test_a_plan_that_does_not_fit_recomputes_first_then_cuts_and_survives_a_kill(tmp_path):
    """On TensorFlow whose CPU allocator is limited: every out-of-memory here is a real one."""
    needs("tensorflow")

    def killed_and_gone_on():
        words = str(SCRIPT), "killed", str(tmp_path / "killed")
        done = run_forked(*words, backend="tensorflow", cwd=tmp_path, env=limited(LIMIT_MB))
        assert done.returncode == -9, done.stderr[-3000:]
        return trained("planned", tmp_path / "killed")

    with ThreadPoolExecutor(1) as pool:
        going_on = pool.submit(killed_and_gone_on)
        undisturbed = trained("planned", tmp_path / "undisturbed")
        found = going_on.result()
    assert undisturbed["said"] == [
        "the same batch again with blocks recomputed, micro-batch 120. The batch stays at 120.",
        "the same batch again with micro-batch 30. The batch stays at 120.",
    ]
    assert undisturbed["recipe"] == found["recipe"] == {"remat": "blocks", "micro_batch": 30}
    assert (undisturbed["updates"], undisturbed["seen_count"], undisturbed["seen_sum"]) == (6, [720], [SUM_OF_NUMBERS])
    assert found["said"] == []
    assert found["weights"] == undisturbed["weights"]
