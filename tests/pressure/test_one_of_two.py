"""Real out-of-memory in one of two processes on PyTorch: both repeat the batch with less, and neither hangs."""

import json
import os

from processes import hide_tensorflow, needs, run_python


def test_out_of_memory_in_one_process_has_both_repeat_the_batch(tmp_path):
    needs("torch")
    settings = {"FITROOM_VOTE_SECONDS": "60", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    settings["MALLOC_ARENA_MAX"] = "1"  # each further arena takes 64 MiB of the addresses that are limited
    settings["PYTHONPATH"] = hide_tensorflow(os.environ)["PYTHONPATH"]
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "tests/helpers/one_of_two.py"]
    found = json.loads(run_python(command, backend="torch", keras_home=tmp_path, **settings).splitlines()[-1])
    assert found["out_of_memory"] >= 1
    assert found["micro_batch"] < 16
    assert any("the same batch again with" in said and "The batch stays at 32" in said for said in found["said"])
    assert found["difference"] < 1e-6
