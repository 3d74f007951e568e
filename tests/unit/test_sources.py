"""Sources of batches that need no framework: arrays, generators, other iterables, threads that work ahead."""

import itertools
import threading
import time
import warnings

import numpy as np
import pytest

from fitroom.errors import HostMemoryError, InputError
from fitroom.inputs import randomness, source_of, split_validation, unpack
from fitroom.inputs.prefetch import prefetch
from sample_sources import check_goes_on_exactly, trained

X = np.arange(20, dtype="float32").reshape(10, 2)
Y = np.arange(10)


def samples(source, epoch, start=0):
    """The numbers of the samples of each batch."""
    return [batch.y.tolist() for batch in source.epoch(epoch, start)]


def same(batch):
    return batch


# Arrays


def test_without_shuffling_samples_come_as_they_stand_and_the_last_batch_is_short():
    source = source_of(X, Y, batch_size=4, shuffle=False)
    assert samples(source, 0) == samples(source, 1) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert (source.num_batches, source.batch_size, source.num_samples) == (3, 4, 10)


def test_every_sample_comes_once_an_epoch_in_an_order_of_seed_and_epoch_alone():
    orders = {}
    for seed, epoch in itertools.product((1, 2), (0, 1, 5)):
        np.random.seed(seed * epoch + 3)
        found = samples(source_of(X, Y, batch_size=3, shuffle=True, seed=seed), epoch)
        assert sorted(itertools.chain(*found)) == list(range(10))
        orders[seed, epoch] = found
    assert len({str(order) for order in orders.values()}) == 6
    assert samples(source_of(X, Y, batch_size=3, shuffle=True, seed=2), 5) == orders[2, 5]


def test_rows_of_x_and_y_stay_together():
    for batch in source_of(X, Y, batch_size=3, shuffle=True, seed=4).epoch(0):
        assert batch.x[:, 0].tolist() == [2.0 * number for number in batch.y]


def test_shuffling_within_batches_keeps_each_batch_together():
    found = samples(source_of(X, Y, batch_size=5, shuffle="batch", seed=1), 2)
    assert [sorted(batch) for batch in found] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert found != [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


@pytest.mark.parametrize("shuffle", [True, False, "batch"])
def test_an_epoch_entered_in_the_middle_has_the_same_batches(shuffle):
    make = lambda: source_of(X, Y, batch_size=3, shuffle=shuffle, seed=9)  # noqa: E731
    whole = samples(make(), 1)
    for start in range(5):
        assert samples(make(), 1, start) == whole[start:]


def test_arrays_go_on_exactly():
    check_goes_on_exactly(lambda: source_of(X, Y, batch_size=3, shuffle=True, seed=5))


def test_the_batch_size_is_32_or_what_the_steps_make_it():
    assert source_of(X, Y).batch_size == 32
    assert source_of(X, Y, steps_per_epoch=3).batch_size == 4


def test_a_batch_larger_than_the_data_is_one_short_batch():
    assert [len(batch) for batch in samples(source_of(X, Y, batch_size=2**62), 0)] == [10]


def test_fewer_steps_than_batches_go_on_in_the_next_epoch():
    source = source_of(X, Y, batch_size=2, shuffle=False, steps_per_epoch=3)
    assert source.num_batches == 3
    assert samples(source, 0) == [[0, 1], [2, 3], [4, 5]]
    with pytest.warns(UserWarning, match="ran out after 2 of the 3"):
        assert samples(source, 1) == [[6, 7], [8, 9]]
    assert samples(source, 2) == [[0, 1], [2, 3], [4, 5]]


def test_more_steps_than_batches_end_with_the_data_and_a_warning():
    source = source_of(X, Y, batch_size=5, steps_per_epoch=4)
    for epoch in range(2):
        with pytest.warns(UserWarning, match="ran out after 2 of the 4"):
            assert len(samples(source, epoch)) == 2


def test_floats_are_given_in_floatx_and_the_rest_as_it_is():
    arrays = {"half": X.astype("float16"), "double": X.astype("float64"), "count": X.astype("int64"), "byte": X > 3}
    batch = source_of(arrays, Y.astype("float64"), batch_size=4, shuffle=False).peek()
    assert {name: str(array.dtype) for name, array in batch.x.items()} == {
        "half": "float32",
        "double": "float32",
        "count": "int64",
        "byte": "bool",
    }
    assert batch.y.dtype == "float32"


def test_samples_side_by_side_are_not_copied():
    batch = source_of(X, Y, batch_size=4, shuffle=False).peek()
    assert np.shares_memory(batch.x, X)


def test_data_behind_a_memory_map_are_read_a_batch_at_a_time(tmp_path):
    np.save(tmp_path / "x.npy", X)
    source = source_of(np.load(tmp_path / "x.npy", mmap_mode="r"), Y, batch_size=4, shuffle=True, seed=1)
    for batch in source.epoch(0):
        assert type(batch.x) is np.ndarray
        assert batch.x[:, 0].tolist() == [2.0 * number for number in batch.y]


def test_structures_of_arrays_keep_their_form():
    x = {"a": X, "b": (X, [X, X])}
    batch = source_of(x, [Y, Y], [Y, Y], batch_size=2, shuffle=False).peek()
    assert batch.x["b"][1][0].tolist() == X[:2].tolist()
    assert isinstance(batch.x["b"], tuple)
    assert isinstance(batch.x["b"][1], list)
    assert [y.tolist() for y in batch.y] == [[0, 1], [0, 1]]


def test_lists_of_numbers_become_arrays():
    batch = source_of([[1.5, 2.0], [3.0, 4.0]], [0, 1], batch_size=2, shuffle=False).peek()
    assert (batch.x.dtype, batch.x.tolist()) == ("float32", [[1.5, 2.0], [3.0, 4.0]])
    assert batch.y.tolist() == [0, 1]
    assert source_of(X[:2], list(np.float64([3, 4])), shuffle=False).peek().y.tolist() == [3.0, 4.0]


def test_lengths_that_differ_are_told_apart_by_name():
    with pytest.raises(InputError, match=r"same number of samples.*x: 10; y: 9; sample_weight: 10"):
        source_of(X, Y[:9], np.ones(10))


@pytest.mark.parametrize("x", [X[:0], [], {}, None])
def test_empty_data_are_an_error(x):
    with pytest.raises(InputError, match=r"no (samples|data)"):
        source_of(x)


@pytest.mark.parametrize("x", [7, "pictures", object(), np.float32(3)])
def test_what_is_no_data_is_an_error(x):
    with pytest.raises(InputError, match=r"must (be|have)"):
        source_of(x)


def test_lists_of_rows_that_differ_in_length_are_an_error():
    with pytest.raises(InputError, match="cannot be made an array"):
        source_of([[1, 2], [3]])


def test_a_batch_of_no_samples_is_an_error():
    with pytest.raises(InputError, match="`batch_size` must be at least 1"):
        source_of(X, batch_size=0)


def test_the_fingerprint_tells_other_data():
    import json

    prints = [
        source_of(X, Y).fingerprint,
        source_of(X.astype("int32"), Y).fingerprint,
        source_of(X[:9], Y[:9]).fingerprint,
        source_of(X[:, :1], Y).fingerprint,
        source_of(X, Y, batch_size=5).fingerprint,
    ]
    assert len({json.dumps(found, sort_keys=True) for found in prints}) == 5
    assert source_of(X, Y).fingerprint == source_of(X + 1, Y).fingerprint


# Weights


def test_class_weights_become_sample_weights_for_numbers_and_for_one_hot():
    numbers = np.array([0, 1, 2, 1])
    for y in (numbers, numbers[:, None].astype("float32"), np.eye(3)[numbers]):
        batch = source_of(X[:4], y, class_weight={0: 0.5, 1: 2.0}, shuffle=False).peek()
        assert batch.sample_weight.tolist() == [0.5, 2.0, 1.0, 2.0]
        assert batch.sample_weight.dtype == "float32"


def test_class_weights_with_sample_weights_or_several_outputs_are_refused():
    with pytest.raises(InputError, match="cannot be given together"):
        source_of(X, Y, np.ones(10), class_weight={0: 2.0})
    with pytest.raises(InputError, match="single output"):
        source_of(X, [Y, Y], class_weight={0: 2.0})
    with pytest.raises(InputError, match="cannot be given together"):
        source_of(iter([(X, Y, np.ones(10))]), class_weight={0: 2.0}).peek()


def test_one_set_of_sample_weights_serves_every_output():
    batch = source_of(X, {"a": Y, "b": Y}, np.arange(10.0), batch_size=2, shuffle=False).peek()
    assert {name: weight.tolist() for name, weight in batch.sample_weight.items()} == {"a": [0.0, 1.0], "b": [0.0, 1.0]}
    with pytest.raises(InputError, match="one number a sample"):
        source_of(X, [Y, Y], np.ones((10, 3)))
    with pytest.raises(InputError, match="structure of the targets"):
        source_of(X, [Y, Y], [np.ones(10)])


def test_weights_without_targets_are_dropped_as_keras_does():
    assert source_of(X, None, np.ones(10)).peek().sample_weight is None


# Validation


def test_the_last_samples_are_held_out_before_any_shuffling():
    (x, y, weight), held_out = split_validation(X, Y, None, 0.3)
    assert weight is None
    assert sorted(itertools.chain(*samples(source_of(x, y, batch_size=4, seed=3), 0))) == [0, 1, 2, 3, 4, 5, 6]
    held = source_of(*unpack(held_out), batch_size=2, shuffle=False)
    assert samples(held, 0) == [[7, 8], [9]]
    assert next(iter(held.epoch(0))).x.tolist() == X[7:9].tolist()


def test_a_split_of_a_structure_splits_all_of_it():
    (x, _, _), (held_x, held_y, _) = split_validation({"a": X, "b": [X]}, Y, None, 0.5)
    assert source_of(x).num_samples == 5
    assert samples(source_of(held_x, held_y, shuffle=False), 0) == [[5, 6, 7, 8, 9]]


def test_a_split_is_for_arrays_with_enough_samples():
    with pytest.raises(InputError, match="is for arrays"):
        split_validation(iter([X]), None, None, 0.5)
    with pytest.raises(InputError, match="too few"):
        split_validation(X[:1], None, None, 0.5)
    with pytest.raises(InputError, match="between 0 and 1"):
        split_validation(X, None, None, 1.5)


@pytest.mark.parametrize("data", [X, (X,), [X], (X, Y), [X, Y], (X, Y, Y)])
def test_parts_of_data_are_told_by_their_number(data):
    x, y, weight = unpack(data)
    assert x is X
    assert (y is None) == (len(data) == 1 or data is X)
    assert (weight is None) == (data is X or len(data) < 3)
    with pytest.raises(InputError, match="4 parts"):
        unpack((X, X, X, X))


# Generators and other iterables


def numbered(count, size=2):
    for number in range(count):
        yield np.full((size, 3), number, "float32"), np.full(size, number)


def numbers(batches):
    return [int(batch.y[0]) for batch in batches]


def test_a_generator_is_divided_among_epochs_by_the_steps():
    source = source_of(numbered(6), steps_per_epoch=2)
    assert source.num_batches == 2
    assert int(source.peek().y[0]) == 0
    assert [numbers(source.epoch(epoch)) for epoch in range(3)] == [[0, 1], [2, 3], [4, 5]]


def test_a_generator_that_ends_early_ends_the_epoch_with_a_warning():
    source = source_of(numbered(3), steps_per_epoch=2)
    assert numbers(source.epoch(0)) == [0, 1]
    with pytest.warns(UserWarning, match="ran out after 1 of the 2"):
        assert numbers(source.epoch(1)) == [2]


def test_without_steps_a_generator_is_one_epoch_and_then_its_first_two_batches_as_in_keras():
    source = source_of(numbered(3))
    assert source.num_batches is None
    assert numbers(source.epoch(0)) == [0, 1, 2]
    with pytest.warns(UserWarning, match="used up: this epoch has its first 2 batches"):
        assert numbers(source.epoch(1)) == [0, 1]


def test_a_generator_to_validate_on_begins_with_the_same_two_batches_each_time_as_in_keras():
    source = source_of(numbered(9), steps_per_epoch=3)
    assert [numbers(source.epoch(0)) for _ in range(3)] == [[0, 1, 2], [0, 1, 3], [0, 1, 4]]


def test_a_generator_in_its_second_pass_goes_on_where_it_was():
    source, again = source_of(numbered(3)), source_of(numbered(3))
    assert numbers(source.epoch(0)) == [0, 1, 2]
    batches = source.epoch(1)
    assert int(next(batches).y[0]) == 0
    again.restore(batches.state())
    for rest in (batches, again.epoch(1, 1)):
        with pytest.warns(UserWarning, match="used up"):
            assert numbers(rest) == [1]


def test_an_iterable_begins_again_each_epoch():
    source = source_of(dict(enumerate(numbered(3))).values())
    assert [numbers(source.epoch(epoch)) for epoch in range(2)] == [[0, 1, 2], [0, 1, 2]]
    assert source.num_batches == 3


class Endless:
    def __iter__(self):
        return numbered(10**9)


def test_data_without_an_end_go_on_from_epoch_to_epoch():
    source = source_of(Endless(), steps_per_epoch=3)
    source.peek()
    assert [numbers(source.epoch(epoch)) for epoch in range(2)] == [[0, 1, 2], [3, 4, 5]]


def test_validation_begins_at_the_beginning_every_time():
    source = source_of(Endless(), steps_per_epoch=2)
    assert [numbers(source.epoch(0)) for _ in range(3)] == [[0, 1]] * 3


def test_steps_that_divide_the_data_leave_no_empty_epoch():
    class Again:
        def __iter__(self):
            return numbered(4)

    source = source_of(Again(), steps_per_epoch=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [numbers(source.epoch(epoch)) for epoch in range(4)] == [[0, 1], [2, 3], [0, 1], [2, 3]]


def test_data_read_from_the_front_skip_to_the_middle_of_an_epoch():
    assert numbers(source_of(Endless(), steps_per_epoch=5).epoch(0, 2)) == [2, 3, 4]
    assert numbers(source_of(numbered(5)).epoch(0, 3)) == [3, 4]


def test_a_generator_that_yields_the_same_again_goes_on_where_it_was():
    def shuffled():
        own = np.random.default_rng(3)
        while True:
            yield own.normal(size=(2, 3)).astype("float32") + np.random.normal(), np.arange(2)

    def make():
        np.random.seed(3)  # as a script that is run again does
        return source_of(shuffled(), steps_per_epoch=4)

    check_goes_on_exactly(make)
    assert "same batches" in make().resume_note
    assert make().resumes == "by skipping"


@pytest.mark.parametrize("element", [X, (X,), [X], {"a": X}, (X, Y), (X, Y, Y), ({"a": X}, Y)])
def test_batches_are_unpacked_by_the_number_of_their_parts(element):
    batch = source_of(iter([element])).peek()
    assert batch.size == 10
    data = batch.data()
    assert type(data) is type(element)
    assert not isinstance(element, tuple) or len(data) == len(element)


def test_a_generator_may_fill_the_same_arrays_again():
    def generator():
        x = np.empty((4, 2), "float32")
        for number in range(5):
            x[:] = number
            yield x, np.full((4,), number)

    with prefetch(source_of(generator()).epoch(0), same, depth=2) as batches:
        found = []
        for item in batches:
            time.sleep(0.02)  # the next ones are made meanwhile
            found.append((float(item.batch.x.max()), float(item.batch.y.max())))
    assert found == [(number, number) for number in range(5)]


def test_an_empty_generator_is_an_error():
    with pytest.raises(InputError, match="ends before its first batch"):
        source_of(iter(())).peek()


def test_data_without_an_axis_of_samples_are_an_error():
    with pytest.raises(InputError, match="first axis is the sample"):
        source_of(iter([(np.float32(3), np.float32(1))])).peek()


def test_targets_beside_a_dataset_are_refused():
    with pytest.raises(InputError, match="`y` belongs into the dataset"):
        source_of(numbered(3), Y)


def test_an_error_in_the_middle_of_a_generator_comes_at_its_turn():
    def broken():
        yield from numbered(2)
        raise OSError("the disk is gone")

    with prefetch(source_of(broken()).epoch(0), same, depth=2) as batches:
        time.sleep(0.05)  # the thread has met the error by now
        assert [int(next(batches).batch.y[0]) for _ in range(2)] == [0, 1]
        with pytest.raises(OSError, match="the disk is gone"):
            next(batches)


# Threads that work ahead


def thread_names():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("fitroom")]


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_batches_made_ahead_are_the_same_in_the_same_order(depth):
    with prefetch(source_of(numbered(7)).epoch(0), same, depth) as batches:
        assert numbers(item.batch for item in batches) == [0, 1, 2, 3, 4, 5, 6]
    assert thread_names() == []


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_no_more_batches_are_made_ahead_than_asked_for(depth):
    made = []

    def counted():
        for number, batch in enumerate(numbered(9)):
            made.append(number)
            yield batch

    with prefetch(source_of(counted()).epoch(0), same, depth) as batches:
        next(batches)
        time.sleep(0.1)
        assert len(made) == max(1 + depth, 2)  # of a generator two are looked at beforehand, as in Keras


def test_a_consumer_that_stops_leaves_no_thread_behind():
    with prefetch(source_of(Endless()).epoch(0), same, 2) as batches:
        assert numbers(next(batches).batch for _ in range(3)) == [0, 1, 2]
        assert thread_names() == ["fitroom batches"]
    assert thread_names() == []
    assert list(batches) == []


def test_batches_are_transformed_by_the_thread():
    names = []

    def transform(batch):
        names.append(threading.current_thread().name)
        return batch.slice(0, 1)

    with prefetch(source_of(numbered(2)).epoch(0), transform) as batches:
        assert [item.batch.size for item in batches] == [1, 1]
    assert set(names) == {"fitroom batches"}


def test_a_host_without_memory_says_which_batch_it_could_not_make():
    class Hungry:
        shape = (10,)

        def __array__(self, dtype=None, copy=None):
            return np.ones((2**50, 1000))

    def generator():
        yield from numbered(2)
        yield Hungry(), Y

    with (
        pytest.raises(HostMemoryError, match="batch 2 was being made: Unable to allocate") as caught,
        prefetch(source_of(generator()).epoch(0), same) as batches,
    ):
        list(batches)
    assert "batch_size" in caught.value.hint
    assert isinstance(caught.value.__cause__, MemoryError)


def test_the_recorded_state_is_the_one_the_next_batch_is_made_with():
    class Drawn:
        def __iter__(self):
            while True:
                yield np.random.normal(size=(2, 3)), np.arange(2)

    np.random.seed(1)
    seen = trained(source_of(Drawn(), steps_per_epoch=4), epochs=1)
    for (_, _, _, state), (_, _, batch, _) in itertools.pairwise(seen):
        randomness.restore(state["random"])
        assert np.random.normal(size=(2, 3)).tolist() == batch[0]


def test_states_are_recorded_only_where_they_are_wanted():
    with prefetch(source_of(numbered(1)).epoch(0), same, record=False) as batches:
        assert next(batches).state == {}
    with prefetch(source_of(numbered(1)).epoch(0), same) as batches:
        assert next(batches).state["reading"]["drawn"] == 1


# Random state


def test_random_state_comes_back():
    import random

    random.seed(5)
    np.random.seed(6)
    np.random.normal()  # leaves the other half of a pair behind
    random.gauss(0, 1)
    state = randomness.capture()
    first = [random.random(), random.gauss(0, 1), np.random.normal(), np.random.permutation(5).tolist()]
    randomness.restore(state)
    assert [random.random(), random.gauss(0, 1), np.random.normal(), np.random.permutation(5).tolist()] == first
