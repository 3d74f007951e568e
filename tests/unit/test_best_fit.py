"""The model of TensorFlow's allocator: the smallest chunk that holds a request, and what is left of it."""

import pytest

from fitroom.memory.allocators.best_fit import MOST_WASTE_BYTES, BestFitAllocator, DoesNotFitError


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
