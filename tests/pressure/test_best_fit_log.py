"""The model of TensorFlow's allocator does what TensorFlow's allocator does, by a log of the real one."""

import json
import os
import re
import subprocess
import sys

import pytest

from fitroom.memory.allocators.best_fit import BestFitAllocator, DoesNotFitError
from processes import ROOT, needs

LIMIT_MIB = 700
REQUEST = re.compile(r"\[mem-debug\] (AllocateRaw|DeallocateRaw),[^,]*,(\d+),(0x[0-9a-f]+)")


def test_a_real_log_of_requests_gives_the_same_bytes_in_use_and_the_same_failure():
    needs("tensorflow")
    run = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "helpers" / "best_fit_process.py")],
        env=os.environ
        | {
            "TF_CPU_ALLOCATOR_USE_BFC": "true",
            "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(LIMIT_MIB),
            "TF_ENABLE_ONEDNN_OPTS": "0",
            "TF_CPP_VMODULE": "bfc_allocator=4",
            "TF_CPP_MIN_LOG_LEVEL": "0",
            "CUDA_VISIBLE_DEVICES": "",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    allocator = BestFitAllocator(limit_bytes=LIMIT_MIB * 2**20, grows=True)
    chunks: dict[str, int] = {}
    num_requests = 0
    for line in run.stderr.splitlines():
        if line.startswith("COUNTERS"):
            counted = json.loads(line.removeprefix("COUNTERS"))
            assert (allocator.in_use_bytes, allocator.peak_bytes) == (counted["current"], counted["peak"])
            break
        if found := REQUEST.search(line):
            action, size, address = found.groups()
            if action == "AllocateRaw":
                chunks[address] = allocator.allocate(int(size))
                num_requests += 1
            elif address in chunks:
                allocator.free(chunks.pop(address))
    assert num_requests > 50
    assert "OUT OF MEMORY" in run.stderr
    with pytest.raises(DoesNotFitError):
        allocator.allocate(400 * 4 * 2**20)
