"""Slow inputs of every kind, planted: the slowest part is named, and the setting that helps does help."""

import time

import keras
import numpy as np
import pytest

import fitroom
from fitroom.checks import input_parts, input_timing
from fitroom.errors import InputError
from sample_pictures import class_folders

BATCH = 8


def decode(number):
    time.sleep(0.008)
    return np.full(4, number, "float32")


def augment(sample):
    time.sleep(0.002)
    return sample + 1


def make_batch(size=BATCH):
    return np.stack([augment(decode(number)) for number in range(size)]), np.zeros((size, 1), "float32")


class SlowDataset(keras.utils.PyDataset):
    def __len__(self):
        return 40

    def __getitem__(self, number):
        return make_batch()


def slow_generator():
    while True:
        x, y = make_batch()
        yield x, y


@pytest.fixture
def model():
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(input_timing, "_SECONDS", 0.5)
    monkeypatch.setattr(input_parts, "_SECONDS_A_PART", 0.15)


def examine(data, model):
    diagnosis = fitroom.doctor(data=data, model=model, batch_size=BATCH)
    return diagnosis["input"], diagnosis["input parts"].facts


def test_a_slow_py_dataset_is_named_and_workers_help(model):
    slow, parts = examine(SlowDataset(), model)
    assert (slow.status, parts["slowest"]) == ("warning", "decode")
    assert parts["seconds"]["decode"] > parts["seconds"]["augment"] > parts["seconds"]["transfer"]
    assert "workers=" in slow.fix
    helped, _ = examine(SlowDataset(workers=8, max_queue_size=16), model)
    assert helped.facts["wait_seconds"] < slow.facts["wait_seconds"] / 2


def test_a_slow_generator_is_told_what_to_become(model):
    slow, parts = examine(slow_generator(), model)
    assert (slow.status, slow.facts["source"], parts["slowest"]) == ("warning", "generator", "decode")
    assert "keras.utils.PyDataset" in slow.fix


def test_a_folder_of_images_is_split_into_decoding_and_augmentation(tmp_path):
    folder = class_folders(tmp_path / "flowers", {"rose": 12, "tulip": 12}, size=(200, 160))
    slow, parts = examine(folder, None)
    assert set(parts["seconds"]) == {"decode", "augmentation", "transfer"}
    assert min(parts["seconds"]["decode"], parts["seconds"]["augmentation"]) > 0
    assert slow.facts["source"] == "folder of images"
    assert "cache='ram'" in slow.fix
    tiny = keras.Sequential([keras.Input((64, 64, 3)), keras.layers.GlobalMaxPooling2D(), keras.layers.Dense(2)])
    with pytest.raises(fitroom.ModelError, match="not compiled"):
        fitroom.doctor(data=folder, model=tiny)
    tiny.compile("sgd", "sparse_categorical_crossentropy")
    judged, _ = examine(folder, tiny)
    assert judged.facts["step_seconds"] > 0


def test_arrays_keep_up_and_the_model_is_as_before(model):
    before = [weight.copy() for weight in model.get_weights()]
    found, parts = examine((np.zeros((4096, 4), "float32"), np.zeros((4096, 1), "float32")), model)
    assert set(parts["seconds"]) == {"reading", "transfer", "step"}
    assert found.facts["wait_seconds"] < 0.05
    assert all(map(np.array_equal, before, model.get_weights()))
    assert int(model.optimizer.iterations.numpy()) == 0


@pytest.mark.backends("tensorflow")
def test_a_slow_tf_data_pipeline_is_split_by_its_steps_and_parallel_map_helps(model):
    import tensorflow as tf

    def read(number):
        return tf.numpy_function(decode, [number], tf.float32)

    def flip(sample):
        sample = tf.numpy_function(augment, [sample], tf.float32)
        sample.set_shape((4,))
        return sample, tf.zeros((1,))

    numbers = tf.data.Dataset.range(400)
    slow, parts = examine(numbers.map(read).map(flip).batch(BATCH), model)
    assert (slow.status, parts["slowest"]) == ("warning", "map(read)")
    assert parts["seconds"]["map(read)"] > parts["seconds"]["map(flip)"]
    codes = [setting["code"] for setting in slow.facts["settings"]]
    assert [any(word in code for code in codes) for word in ("num_parallel_calls", "prefetch", "cache")] == [True] * 3
    assert f"decoded samples take {400 * 16 / 1024:.1f} KiB" in slow.fix
    faster = numbers.map(read, num_parallel_calls=16).map(flip, num_parallel_calls=16).batch(BATCH).prefetch(4)
    helped, _ = examine(faster, model)
    assert helped.facts["wait_seconds"] < slow.facts["wait_seconds"] / 2


@pytest.mark.filterwarnings("ignore:This DataLoader")  # of more workers than cores
@pytest.mark.backends("torch")
def test_a_slow_loader_is_told_its_workers_and_they_help(model):
    import torch

    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return 400

        def __getitem__(self, number):
            return augment(decode(number)), np.zeros(1, "float32")

    slow, parts = examine(torch.utils.data.DataLoader(Samples(), batch_size=BATCH), model)
    assert (slow.status, parts["slowest"]) == ("warning", "decode")
    assert "num_workers=" in slow.fix
    assert "pin_memory=True" in slow.fix
    helped, _ = examine(torch.utils.data.DataLoader(Samples(), batch_size=BATCH, num_workers=4), model)
    assert helped.facts["wait_seconds"] < slow.facts["wait_seconds"] / 2


def test_data_that_end_or_are_none_are_refused(model):
    with pytest.raises(InputError, match="no batches"):
        fitroom.doctor(data=iter(()), model=model)
    with pytest.raises(InputError, match="no data"):
        fitroom.doctor(model=model)
    with pytest.raises(InputError, match="Data must be arrays"):
        fitroom.doctor(data=7, model=model)
