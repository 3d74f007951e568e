"""The model of PyTorch's caching allocator does what PyTorch's rules say."""

import pytest

from fitroom.memory.allocators.caching import CachingAllocator, OutOfMemoryError
from fitroom.memory.allocators.replay import Requests, limit_for_all_bytes, replay, smallest_limit_bytes

KIB = 1024
MIB = 1024**2


def test_small_requests_share_a_segment_in_blocks_of_512_bytes():
    allocator = CachingAllocator()
    sizes = [allocator.allocate(size).size_bytes for size in (1, 512, 513, 100 * KIB)]
    assert sizes == [512, 512, 1024, 100 * KIB]
    assert allocator.reserved_bytes == 2 * MIB


def test_a_large_request_takes_a_segment_of_20_mib_and_the_next_one_the_rest_of_it():
    allocator = CachingAllocator()
    allocator.allocate(2 * MIB)
    assert allocator.reserved_bytes == 20 * MIB
    allocator.allocate(9 * MIB)
    assert allocator.reserved_bytes == 20 * MIB
    assert allocator.allocated_bytes == 11 * MIB


def test_from_10_mib_on_a_segment_is_as_large_as_the_request():
    allocator = CachingAllocator()
    block = allocator.allocate(10 * MIB + 1)
    assert allocator.reserved_bytes == 12 * MIB
    assert block.size_bytes == 10 * MIB + 512  # the rest is more than 1 MiB, and split off


def test_a_rest_of_up_to_1_mib_is_not_split_off_and_counts_as_in_use():
    allocator = CachingAllocator()
    assert allocator.allocate(11 * MIB).size_bytes == 12 * MIB
    assert allocator.allocated_bytes == 12 * MIB


def test_the_smallest_free_block_that_is_large_enough_is_taken():
    allocator = CachingAllocator()
    small, large = allocator.allocate(12 * MIB), allocator.allocate(40 * MIB)
    allocator.free(large)
    allocator.free(small)
    assert allocator.allocate(11 * MIB).size_bytes == 12 * MIB
    assert allocator.reserved_bytes == 52 * MIB


def test_free_neighbours_become_one_block():
    allocator = CachingAllocator()
    blocks = [allocator.allocate(5 * MIB) for _ in range(4)]  # one segment of 20 MiB
    for block in (blocks[1], blocks[3], blocks[2]):
        allocator.free(block)
    allocator.allocate(15 * MIB)
    assert allocator.reserved_bytes == 20 * MIB


def test_small_and_large_requests_do_not_share():
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(20 * MIB))
    allocator.allocate(1 * MIB)
    assert allocator.reserved_bytes == 22 * MIB


def test_free_segments_are_given_back_only_when_the_limit_is_reached():
    allocator = CachingAllocator(limit_bytes=50 * MIB)
    allocator.free(allocator.allocate(20 * MIB))
    allocator.allocate(24 * MIB)
    assert allocator.reserved_bytes == 44 * MIB
    allocator.allocate(26 * MIB)
    assert allocator.reserved_bytes == 50 * MIB
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(1)


def test_a_segment_that_is_in_use_in_part_is_not_given_back():
    allocator = CachingAllocator(limit_bytes=30 * MIB)
    keep, drop = allocator.allocate(5 * MIB), allocator.allocate(15 * MIB)
    allocator.free(drop)
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(16 * MIB)
    allocator.free(keep)
    allocator.allocate(16 * MIB)


def test_the_smallest_limit_holds_what_is_in_pieces():
    """Two blocks of 20 MiB around one that stays: their places cannot be used together."""
    sizes = [20 * MIB, 20 * MIB, 20 * MIB, 40 * MIB]
    requests = Requests(sizes_bytes=sizes, events=[0, 1, 2, ~0, ~2, 3])
    unlimited = replay(requests)
    assert unlimited.reserved_bytes == 100 * MIB
    assert unlimited.block_bytes == sizes
    assert smallest_limit_bytes(requests, 40 * MIB, unlimited.reserved_bytes) == 60 * MIB


def test_the_smallest_limit_is_above_the_peak_where_segments_are_broken_up():
    sizes = [6 * MIB] * 6 + [20 * MIB]
    events = [0, 1, 2, 3, 4, 5, ~0, ~1, ~3, ~4, 6]  # two segments of 20 MiB, each with 6 MiB in use
    requests = Requests(sizes_bytes=sizes, events=events)
    assert smallest_limit_bytes(requests, 36 * MIB, replay(requests).reserved_bytes) == 60 * MIB


def test_steps_to_come_free_what_the_last_one_left():
    """A batch is there until the next is; what is computed is gone when the step ends."""
    batch, activation = 8 * MIB, 3 * MIB
    first, last = [0, 1, ~1], [2, ~0, 3, ~3]
    requests = Requests(sizes_bytes=[batch, activation, batch, activation], events=[*first, *last])
    longer = requests.extend(len(first), times=2)
    assert list(longer.events) == [*first, *last, 4, ~2, 5, ~5, 6, ~4, 7, ~7]
    assert list(longer.sizes_bytes) == [batch, activation] * 4


def test_parts_that_differ_in_size_break_memory_up_step_by_step():
    """What is left of a block that is a little too large is given to something that stays."""
    large, smaller, small = 60 * MIB, 58 * MIB, 2 * MIB
    step = [0, ~0, 1, 2, ~1]  # the small one stays in the rest of the large one's place
    requests = Requests(sizes_bytes=[large, smaller, small], events=step)
    once, again = (smallest_limit_bytes(one, large, 10 * large) for one in (requests, requests.extend(0, times=1)))
    assert once == 60 * MIB
    assert again == 120 * MIB


def test_what_is_collected_is_freed_later_in_other_processes_and_nothing_is_lost():
    """Every tenth buffer waits for a collection, which comes after each hundred."""
    events, garbage = [], []
    for number in range(1000):
        events.append(number)
        if number % 10:
            events.append(~number)
        else:
            garbage.append(number)
        if number % 100 == 99:
            events += [~each for each in garbage]
            garbage.clear()
    collected = frozenset(range(0, 1000, 10))
    requests = Requests(sizes_bytes=[MIB] * 1000, events=events, collected=collected)
    late = [list(requests.with_late_collections(seed).events) for seed in (1, 1, 2)]
    assert late[0] == late[1] != late[2]
    place = {event: at for at, event in enumerate(events)}
    for each in late:
        assert sorted(each) == sorted(events)
        assert [event for event in each if ~event not in collected] == [e for e in events if ~e not in collected]
        assert all(each.index(~number) >= place[~number] for number in collected)
        assert each != events


def test_a_limit_for_several_processes_is_that_of_the_one_that_needs_most():
    modest = Requests(sizes_bytes=[20 * MIB], events=[0, ~0])
    demanding = Requests(sizes_bytes=[20 * MIB, 20 * MIB], events=[0, 1])
    assert limit_for_all_bytes([modest], 30 * MIB) == 30 * MIB
    assert limit_for_all_bytes([modest, demanding], 30 * MIB) == 40 * MIB
