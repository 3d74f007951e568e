"""tf.data and TensorFlow's arrays as sources of batches."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from fitroom.errors import HostMemoryError, InputError
from fitroom.inputs import randomness, source_of
from sample_sources import check_goes_on_exactly, trained, values

X = np.arange(20, dtype="float32").reshape(10, 2)
Y = np.arange(10)


def dataset(x=X, y=Y):
    return tf.data.Dataset.from_tensor_slices((x, y))


def samples(batches):
    return [batch.y.tolist() for batch in batches]


def test_a_dataset_is_one_pass_an_epoch():
    source = source_of(dataset().batch(4))
    assert (source.num_batches, source.batch_size) == (3, None)
    assert source_of(dataset().batch(4, drop_remainder=True)).batch_size == 4
    source.peek()
    for epoch in range(2):
        batches = list(source.epoch(epoch))
        assert samples(batches) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert all(type(batch.x) is np.ndarray for batch in batches)
    assert "float32" in source.fingerprint["elements"][0]


def test_a_batch_on_the_cpu_is_not_copied():
    tensor = tf.ones((4, 2))
    batch = source_of(iter([(tensor, tensor)])).peek()
    assert np.shares_memory(batch.x, np.asarray(memoryview(tensor)))


def test_a_dataset_of_unknown_length_is_read_to_its_end_each_epoch():
    source = source_of(dataset().filter(lambda x, y: y != 3).batch(5))
    assert source.num_batches is None
    assert [samples(source.epoch(epoch)) for epoch in range(2)] == [[[0, 1, 2, 4, 5], [6, 7, 8, 9]]] * 2


def test_a_dataset_that_repeats_goes_on_from_epoch_to_epoch():
    source = source_of(dataset().batch(4).repeat(), steps_per_epoch=2)
    assert source.num_batches == 2
    source.peek()
    found = [samples(source.epoch(epoch)) for epoch in range(3)]
    assert found == [[[0, 1, 2, 3], [4, 5, 6, 7]], [[8, 9], [0, 1, 2, 3]], [[4, 5, 6, 7], [8, 9]]]


def test_a_shuffled_dataset_has_every_sample_once_and_another_order_each_epoch():
    source = source_of(dataset().shuffle(10, seed=3).batch(4))
    orders = [list(itertools.chain(*samples(source.epoch(epoch)))) for epoch in range(3)]
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert len({str(order) for order in orders}) == 3


@pytest.mark.parametrize("steps", [None, 2])
def test_a_seeded_dataset_goes_on_exactly(steps):
    def make():
        tf.random.set_seed(2)
        data = dataset().shuffle(10, seed=3).batch(4)
        return source_of(data.repeat() if steps else data, steps_per_epoch=steps)

    check_goes_on_exactly(make)
    assert "seed" in make().resume_note


def test_a_dataset_shuffled_by_the_global_seed_goes_on_exactly():
    def make():
        keras.utils.set_random_seed(4)
        return source_of(dataset().shuffle(10).batch(3))

    check_goes_on_exactly(make)


def test_class_weights_reach_the_batches_of_a_dataset():
    batches = list(source_of(dataset(y=Y % 2).batch(5), class_weight={1: 3.0}).epoch(0))
    assert batches[0].sample_weight.tolist() == [1.0, 3.0, 1.0, 3.0, 1.0]
    pixels = tf.data.Dataset.from_tensors((X[None], np.array([[[0], [1]]])))  # a class for each pixel
    assert source_of(pixels, class_weight={1: 3.0}).peek().sample_weight.tolist() == [[1.0, 3.0]]


def test_dicts_and_single_inputs_are_taken():
    named = tf.data.Dataset.from_tensor_slices(({"a": X, "b": X}, Y)).batch(4)
    assert sorted(source_of(named).peek().x) == ["a", "b"]
    alone = source_of(tf.data.Dataset.from_tensor_slices(X).batch(4)).peek()
    assert (alone.size, alone.y) == (4, None)


def test_ragged_words_and_sparse_stay_tensorflows():
    ragged = tf.ragged.constant([[1.0], [2.0, 3.0], [], [4.0]])
    words = tf.constant(["a", "b", "c", "d"])
    sparse = tf.sparse.from_dense(np.eye(4, dtype="float32"))
    inputs = {"ragged": ragged, "words": words, "sparse": sparse}
    of_arrays = source_of(inputs, batch_size=3, shuffle=False).peek()
    of_dataset = source_of(tf.data.Dataset.from_tensor_slices(inputs).batch(3)).peek()
    for batch in (of_arrays, of_dataset):
        assert batch.size == 3
        part = batch.slice(1, 3)
        assert part.x["ragged"].to_list() == [[2.0, 3.0], []]
        assert part.x["words"].numpy().tolist() == [b"b", b"c"]
        assert tf.sparse.to_dense(part.x["sparse"]).numpy().tolist() == np.eye(4)[1:3].tolist()
    shuffled = next(iter(source_of(inputs, np.arange(4), batch_size=3, seed=1).epoch(0)))
    assert [word.decode() for word in shuffled.x["words"].numpy()] == ["abcd"[number] for number in shuffled.y]
    assert shuffled.x["ragged"].to_list() == [ragged[number].numpy().tolist() for number in shuffled.y]


def test_errors_of_a_dataset_come_at_their_turn():
    broken = dataset().map(lambda x, y: (tf.debugging.check_numerics(x / tf.cast(5 - y, "float32"), "x"), y)).batch(2)
    batches = source_of(broken).epoch(0)
    assert samples([next(batches), next(batches)]) == [[0, 1], [2, 3]]
    with pytest.raises(tf.errors.InvalidArgumentError):
        next(batches)


def test_memory_that_the_dataset_cannot_have_is_the_hosts():
    huge = tf.data.Dataset.range(1).map(lambda _: tf.zeros((2**20, 2**20, 2**10)))
    with pytest.raises(HostMemoryError, match=r"batch 0 of 1048576 samples was being made: OOM when allocating"):
        next(source_of(huge).epoch(0))


def test_an_empty_dataset_is_an_error():
    with pytest.raises(InputError, match="no batches"):
        source_of(dataset().take(0).batch(2))
    with pytest.raises(InputError, match="ends before its first batch"):
        source_of(dataset().filter(lambda x, y: y > 99).batch(2)).peek()
    with pytest.raises(InputError, match="first axis is the sample"):
        source_of(tf.data.Dataset.range(3)).peek()


def test_random_state_of_tensorflow_comes_back():
    tf.random.set_seed(3)
    tf.random.normal(())
    state = randomness.capture()
    first = [float(tf.random.normal(())) for _ in range(2)] + [float(tf.random.get_global_generator().normal(()))]
    between = randomness.capture()
    second = float(tf.random.get_global_generator().normal(()))
    randomness.restore(between)
    assert float(tf.random.get_global_generator().normal(())) == second
    tf.random.set_seed(99)
    randomness.restore(state)
    assert [float(tf.random.normal(())) for _ in range(2)] == first[:2]


def test_batches_are_the_same_through_a_thread():
    source = source_of(dataset().shuffle(10, seed=1).batch(4))
    direct = [values(batch) for batch in source.epoch(0)]
    assert [row[2] for row in trained(source_of(dataset().shuffle(10, seed=1).batch(4)), epochs=1)] == direct
