"""The way of batches to the card on TensorFlow: a second CPU stands for the card."""

import threading
import time
from types import SimpleNamespace
from typing import ClassVar

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import fitroom
from fitroom.backends.tensorflow.train import pinned as pinned_module
from fitroom.backends.tensorflow.train import transfer as feed_module
from fitroom.backends.tensorflow.train.host import as_tensors
from fitroom.backends.tensorflow.train.pinned import PinnedMemory, card_in_use
from fitroom.backends.tensorflow.train.transfer import Transfer
from fitroom.batch import Batch

HOST, CARD = "CPU:0", "/job:localhost/replica:0/task:0/device:CPU:1"


def batch_of(size, seed=0):
    random = np.random.default_rng(seed)
    return Batch(x=random.random((size, 8, 8, 3), "float32"), y=random.integers(0, 5, size).astype("int32"))


def devices_of(batch):
    return {str(tensor.device) for tensor in batch.data()}


@pytest.fixture
def taken(monkeypatch):
    """Where each part was when it was taken."""
    devices = []
    take = Transfer.take

    def noted(self, batch, number, part):
        found = take(self, batch, number, part)
        devices.extend(devices_of(as_tensors(found)))
        return found

    monkeypatch.setattr(Transfer, "take", noted)
    return devices


def trained(device, micro_batch, *, jit=True):
    with tf.device(device):
        keras.utils.set_random_seed(1)
        net = [layers.Flatten(), layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.2)]
        model = keras.Sequential([keras.Input((8, 8, 3)), *net, layers.Dense(5, activation="softmax")])
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy", jit_compile=jit)
        data = batch_of(48)
        recipe = fitroom.Recipe(micro_batch=micro_batch)
        history = fitroom.fit(
            model, data.x, data.y, batch_size=16, epochs=2, verbose=0, recipe=recipe, validation_data=data.data()
        )
    return history.history, model.get_weights()


@pytest.mark.parametrize("micro_batch", [None, 4])
def test_in_graph_mode_pictures_come_from_the_card_and_the_result_is_the_same(taken, micro_batch):
    expected_history, expected = trained(HOST, micro_batch, jit=False)
    assert CARD not in taken
    taken.clear()
    history, weights = trained(CARD, micro_batch, jit=False)
    assert taken.count(CARD) >= 2
    assert history == expected_history
    for each, other in zip(weights, expected, strict=True):
        np.testing.assert_array_equal(each, other)


def test_in_graph_mode_whole_numbers_of_32_bits_stay_on_the_host():
    feed, batch = Transfer(CARD, is_jitted=False), batch_of(8)
    feed.start(batch, 0, batch)
    copied = feed.take(batch, 0, batch)
    assert copied.x.device == CARD
    assert copied.y.device.endswith(HOST)
    np.testing.assert_array_equal(copied.y, batch.y)
    assert isinstance(feed.number(np.int32(3)), np.ndarray)
    assert feed.number(np.float32(3)).device == CARD


class PlainMemory:
    """Stands for memory that is locked in place, for which it takes a card."""

    made: ClassVar[list[int]] = []

    def __init__(self, num_bytes):
        self.num_bytes, self._owner = num_bytes, np.empty(num_bytes + 64, "uint8")
        self.address = -(-self._owner.ctypes.data // 64) * 64
        self.made.append(num_bytes)


@pytest.fixture
def pinned(request, monkeypatch):
    """Whether batches wait in memory of their own."""
    PlainMemory.made.clear()
    if request.param:
        monkeypatch.setattr(feed_module, "card_in_use", lambda: SimpleNamespace(allocate=PlainMemory))
    return request.param


@pytest.mark.parametrize(("micro_batch", "pinned"), [(None, False), (4, True)], indirect=["pinned"])
def test_parts_come_from_the_card_and_the_result_is_the_same(taken, pinned, micro_batch):
    expected_history, expected = trained(HOST, micro_batch)
    assert CARD not in taken
    taken.clear()
    history, weights = trained(CARD, micro_batch)
    # The first of an epoch comes from the host, and a batch that was not made in time.
    assert taken.count(CARD) >= (2 if micro_batch is None else len(taken) // 2)
    assert history == expected_history
    for each, other in zip(weights, expected, strict=True):
        np.testing.assert_array_equal(each, other)
    assert bool(PlainMemory.made) == pinned


def test_a_training_that_stops_early_leaves_nothing_on_the_card():
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 1

    with tf.device(CARD):
        model = keras.Sequential([keras.Input((8, 8, 3)), layers.Flatten(), layers.Dense(5)])
        model.compile("adam", "mse", jit_compile=True)
        batch = batch_of(40)
        fitroom.fit(model, batch.x, np.zeros((40, 5), "float32"), batch_size=8, verbose=0, callbacks=[Stop()])
    [stepper] = [each for each in vars(model)["_fitroom_steppers"].values() if each.holds]
    assert int(model.optimizer.iterations) == 2
    assert stepper._transfer._copy is None
    assert stepper._transfer.queue.next_after(batch) is None


def test_what_was_started_is_taken_once_and_nothing_else_is():
    feed, batch, other = Transfer(CARD), batch_of(8), batch_of(8)
    feed.start(batch, 1, batch)
    copied = feed.take(batch, 1, batch)
    assert devices_of(copied) == {CARD}
    np.testing.assert_array_equal(copied.x, batch.x)
    np.testing.assert_array_equal(copied.y, batch.y)
    assert feed.take(batch, 1, batch) is batch
    for asked, number, part in ((other, 1, batch), (batch, 0, batch), (batch, 1, batch_of(4))):
        feed.start(batch, 1, batch)
        assert feed.take(asked, number, part) is part


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64"])
def test_any_kind_of_number_is_copied_as_it_is(dtype):
    values = tf.cast([0, 1, 7], dtype)
    with tf.device(HOST):
        batch = Batch(x=tf.cast([[0.0], [1.5], [7.0]], "float32"), y=values)
    feed = Transfer(CARD)
    feed.start(batch, 0, batch)
    copied = feed.take(batch, 0, batch)
    assert devices_of(copied) == {CARD}
    assert copied.y.dtype == values.dtype
    np.testing.assert_array_equal(copied.y.numpy(), values.numpy())


def test_while_an_array_is_on_its_way_others_run_and_begin_theirs(monkeypatch):
    """The copy waits here for what it would wait for on a card: work that was given before. That is planted."""
    begun, go_on = [], threading.Event()
    copied = feed_module._copy

    def slowly(tensor, device):
        begun.append(tensor.dtype)
        go_on.wait(20)
        return copied(tensor, device)

    monkeypatch.setattr(feed_module, "_copy", slowly)
    feed, batch = Transfer(CARD), batch_of(4)
    feed.start(batch, 0, batch)
    until = time.monotonic() + 10
    while len(begun) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert sorted(each.name for each in begun) == ["float32", "int32"]
    go_on.set()
    assert devices_of(feed.take(batch, 0, batch)) == {CARD}


def test_numbers_are_copied_once():
    feed = Transfer(CARD)
    number = feed.number(np.int32(256))
    assert number.device == CARD
    assert number.dtype == tf.int32
    assert feed.number(np.int32(256)) is number
    assert feed.number(np.float32(256)).dtype == tf.float32
    assert Transfer(None).number(7) == 7


def test_what_only_the_host_can_hold_stays_there():
    words = Batch(x=tf.constant(["a", "b"]), y=tf.constant([0, 1]))
    feed = Transfer(CARD)
    feed.start(words, 0, words)
    assert feed.take(words, 0, words) is words
    assert feed.beside(words) is None


def test_a_copy_that_runs_out_of_memory_leaves_the_part_on_the_host(monkeypatch):
    """The error is planted."""

    def out_of_memory(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "no room")

    monkeypatch.setattr(feed_module, "_copy", out_of_memory)
    feed, batch = Transfer(CARD), batch_of(4)
    feed.start(batch, 0, batch)
    assert feed.take(batch, 0, batch) is batch


def test_pinned_memory_is_used_again_once_nobody_holds_what_was_in_it():
    PlainMemory.made.clear()
    memory, first = PinnedMemory(PlainMemory), np.arange(1600, dtype="float32").reshape(100, 16)
    tensor = memory.copied(first)[10:30].as_tensor()
    np.testing.assert_array_equal(memory.copied(first + 1), first + 1)
    np.testing.assert_array_equal(tensor, first[10:30])
    assert len(PlainMemory.made) == 2
    del tensor
    for _ in range(9):
        np.testing.assert_array_equal(memory.copied(tf.constant(first)).as_tensor(), first)
    assert len(PlainMemory.made) == 2


def test_a_part_that_begins_where_no_tensor_may_is_pinned_once_more():
    PlainMemory.made.clear()
    numbers = np.arange(100, dtype="int32")
    part = PinnedMemory(PlainMemory).copied(numbers)[37:74]
    tensor = part.as_tensor()
    np.testing.assert_array_equal(tensor, numbers[37:74])
    assert np.asarray(memoryview(tensor)).ctypes.data != part.ctypes.data
    assert PlainMemory.made == [400, 148]


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([True]), np.zeros((0, 3)), tf.constant(["a"]), [None]])
def test_what_is_not_plain_numbers_is_not_pinned(array):
    assert PinnedMemory(PlainMemory).copied(array) is None


def test_without_pinned_memory_batches_wait_as_they_are(monkeypatch):
    """That CUDA has no more of it is planted."""

    def none_left(num_bytes):
        raise MemoryError

    feed, batch = Transfer(CARD, PinnedMemory(none_left)), batch_of(8)
    np.testing.assert_array_equal(feed.expect(batch).x, batch.x)
    monkeypatch.setattr(pinned_module, "_MOST_BYTES", 1000)
    memory = PinnedMemory(PlainMemory)
    assert memory.copied(np.zeros(200, "float32")) is not None
    held = memory.copied(np.zeros(200, "uint8"))
    assert memory.copied(np.zeros(250, "float32")) is None
    del held
    assert memory.copied(np.zeros(250, "float32")) is not None


def test_without_a_card_there_is_no_pinned_memory():
    assert card_in_use() is None


def scripted_driver():
    """Stands for CUDA's driver: the second of two cards is in use. The real one was tried on an H200."""
    driver = SimpleNamespace(held={}, contexts=[], error=0)

    def gives(value):
        def write(reference, *_):
            reference._obj.value = value
            return driver.error

        return write

    def allocate(address, size, flags):
        assert driver.contexts == [71]
        address._obj.value = 4096 * (1 + len(driver.held))
        driver.held[address._obj.value] = size.value
        return driver.error

    def free(address):
        assert driver.contexts == [71]
        del driver.held[address.value]
        return 0

    driver.cuInit = lambda flags: driver.error
    driver.cuDeviceGetCount = gives(2)
    driver.cuDevicePrimaryCtxGetState = lambda device, flags, is_active: gives(device == 1)(is_active)
    driver.cuDevicePrimaryCtxRetain = lambda context, device: gives(70 + device)(context)
    driver.cuCtxPushCurrent_v2 = lambda context: driver.contexts.append(context.value)
    driver.cuCtxPopCurrent_v2 = lambda context: driver.contexts.pop() and 0
    driver.cuMemHostAlloc, driver.cuMemFreeHost = allocate, free
    return driver


def test_memory_comes_from_a_card_that_is_in_use_and_goes_back_with_its_holder(monkeypatch):
    driver = scripted_driver()
    monkeypatch.setattr("ctypes.CDLL", lambda name: driver)
    card = card_in_use()
    memory = card.allocate(1000)
    assert driver.held == {memory.address: 1000}
    del memory
    assert (driver.held, driver.contexts) == ({}, [])
    driver.error = 2  # out of memory
    with pytest.raises(MemoryError):
        card.allocate(1000)
    assert driver.contexts == []
    assert card_in_use() is None
