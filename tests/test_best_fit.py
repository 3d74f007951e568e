"""The model of TensorFlow's allocator does what TensorFlow's allocator does."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fitroom.memory.allocators.best_fit import MOST_WASTE_BYTES, BestFitAllocator, DoesNotFitError

from test_backend_contract import needs

LIMIT_MIB = 700
REQUEST = re.compile(r"\[mem-debug\] (AllocateRaw|DeallocateRaw),[^,]*,(\d+),(0x[0-9a-f]+)")


def test_a_request_takes_the_smallest_chunk_that_holds_it_and_leaves_the_rest_only_if_it_is_large():
    allocator = BestFitAllocator(limit_bytes=100 * 2**20)
    small, _, large, _ = [allocator.allocate(size * 2**20) for size in (2, 1, 10, 1)]
    allocator.free(small)
    allocator.free(large)
    assert allocator.allocate(2**20 + 1) == small
    assert allocator.size_of(small) == 2 * 2**20  # taken whole
    assert allocator.allocate(4 * 2**20) == large
    assert allocator.size_of(large) == 4 * 2**20  # the rest is more than was asked for


def test_much_is_never_wasted():
    allocator = BestFitAllocator(limit_bytes=MOST_WASTE_BYTES * 4)
    first = allocator.allocate(MOST_WASTE_BYTES * 2)
    assert allocator.size_of(first) == MOST_WASTE_BYTES * 2
    allocator.free(first)
    first = allocator.allocate(MOST_WASTE_BYTES * 3)
    assert allocator.size_of(first) == MOST_WASTE_BYTES * 3


def test_free_neighbours_become_one():
    allocator = BestFitAllocator(limit_bytes=3 * 256)
    chunks = [allocator.allocate(256) for _ in range(3)]
    for chunk in (chunks[0], chunks[2], chunks[1]):
        allocator.free(chunk)
    assert allocator.in_use_bytes == 0
    assert allocator.allocate(3 * 256) == chunks[0]


def test_free_memory_in_pieces_does_not_hold_a_large_request():
    allocator = BestFitAllocator(limit_bytes=4 * 256)
    chunks = [allocator.allocate(256) for _ in range(4)]
    allocator.free(chunks[0])
    allocator.free(chunks[2])
    with pytest.raises(DoesNotFitError):
        allocator.allocate(512)


@pytest.mark.slow
def test_a_real_log_of_requests_gives_the_same_bytes_in_use_and_the_same_failure():
    needs("tensorflow")
    run = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "best_fit_process.py")],
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
