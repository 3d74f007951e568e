"""Sources with Keras: arrays as its adapters give them, PyDataset, pictures in a folder."""

import importlib.util
import random
import threading
import time

import keras
import numpy as np
import pytest

# Keras's own way with data, to compare with; it has no public name.
from keras.src.trainers.data_adapters import get_data_adapter

from fitroom.batch import Batch
from fitroom.errors import HostMemoryError, InputError
from fitroom.inputs import randomness, source_of
from sample_sources import check_goes_on_exactly, trained, values

BACKEND = keras.config.backend()
X = np.arange(20, dtype="float32").reshape(10, 2)
Y = np.arange(10)


def keras_batches(x, y=None, sample_weight=None, **options):
    adapter = get_data_adapter(x, y, sample_weight, **options)
    found = adapter.get_tf_dataset().as_numpy_iterator() if BACKEND == "tensorflow" else adapter.get_numpy_iterator()
    parts = [keras.utils.unpack_x_y_sample_weight(data) for data in found]
    return [Batch(x=x, y=y, sample_weight=weight) for x, y, weight in parts]


def described(batches):
    return [
        keras.tree.map_structure(lambda array: (str(array.dtype), array.shape, array.tolist()), batch.data())
        for batch in batches
    ]


# Arrays


@pytest.mark.parametrize(
    ("x", "y", "sample_weight", "options"),
    [
        (X.astype("float64"), Y, None, {}),
        (X.astype("float16"), Y.astype("float64"), np.ones(10), {}),
        ({"a": X, "b": [X, Y]}, (Y, Y), None, {}),
        (X, {"a": Y, "b": Y}, np.arange(10.0), {}),
        (X, None, None, {}),
        (X, Y % 3, None, {"class_weight": {0: 0.5, 2: 4.0}}),
        (X, np.eye(3)[Y % 3], None, {"class_weight": {0: 0.5, 2: 4.0}}),
        (X, Y, None, {"steps_per_epoch": 3}),
    ],
)
def test_batches_are_those_of_keras(x, y, sample_weight, options):
    size = {} if "steps_per_epoch" in options else {"batch_size": 4}
    ours = list(source_of(x, y, sample_weight, shuffle=False, **size, **options).epoch(0))
    assert described(ours) == described(keras_batches(x, y, sample_weight, shuffle=False, **size, **options))


def test_arrays_of_the_framework_are_cut_on_the_host():
    x, y = keras.ops.convert_to_tensor(X), keras.ops.convert_to_tensor(Y.astype("int32"))
    source = source_of(x, y, batch_size=4, shuffle=True, seed=2)
    for batch in source.epoch(0):
        assert type(batch.x) is np.ndarray
        assert batch.x[:, 0].tolist() == [2.0 * number for number in batch.y]
    assert source.fingerprint["x"] == [[[2], "float32"]]
    unshuffled = source_of(x, y, batch_size=4, shuffle=False)
    assert described(unshuffled.epoch(0)) == described(
        source_of(X, Y.astype("int32"), batch_size=4, shuffle=False).epoch(0)
    )


def test_half_precision_of_the_framework_is_given_in_floatx():
    x = keras.ops.cast(X, "bfloat16")
    batch = source_of(x, Y, batch_size=4, shuffle=True).peek()
    assert (batch.x.dtype, batch.x[:, 0].tolist()) == ("float32", [2.0 * number for number in batch.y])


@pytest.mark.skipif(not importlib.util.find_spec("scipy"), reason="SciPy is not installed")
@pytest.mark.parametrize("shuffle", [False, True])
def test_sparse_rows_are_those_of_the_dense_array(shuffle):
    import scipy.sparse

    dense = np.where(np.random.default_rng(1).random((10, 6)) > 0.7, 2.5, 0.0)
    source = source_of(scipy.sparse.coo_matrix(dense), Y, batch_size=4, shuffle=shuffle, seed=3)
    whole = []
    for batch in source.epoch(0):
        assert batch.size == len(batch.y)
        for part in batch.micro_batches(3):
            rows = keras.ops.convert_to_numpy(part.x)
            assert rows.dtype == "float32"
            assert rows.tolist() == dense[part.y].tolist()
            whole += part.y.tolist()
    assert sorted(whole) == list(range(10))
    if BACKEND != "torch":
        assert type(batch.x).__name__ == {"jax": "BCOO", "tensorflow": "SparseTensor"}[BACKEND]


@pytest.mark.skipif(not importlib.util.find_spec("pandas"), reason="pandas is not installed")
def test_tables_are_those_of_keras():
    import pandas

    table = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1].astype("float64")}, index=list("kjihgfedcb"))
    labels = pandas.Series(Y, index=table.index)
    ours = list(source_of(table, labels, batch_size=4, shuffle=False).epoch(0))
    assert described(ours) == described(keras_batches(table, labels, batch_size=4, shuffle=False))
    for batch in source_of(table, labels, batch_size=4, shuffle=True).epoch(0):
        assert batch.x[:, 0].tolist() == [2.0 * number for number in batch.y[:, 0]]


@pytest.mark.skipif(not importlib.util.find_spec("grain"), reason="Grain is not installed")
def test_grain_data_are_read_pass_after_pass():
    import grain

    data = grain.MapDataset.source(list(zip(X, Y, strict=True))).shuffle(seed=4).batch(4)
    for grained in (data, data.to_iter_dataset()):
        make = lambda: source_of(grained)  # noqa: B023, E731
        found = [values(batch) for batch in make().epoch(0)]
        assert sorted(number for batch in found for number in batch[1]) == list(range(10))
        assert "grain" in make().fingerprint["kind"]
        check_goes_on_exactly(make)


# PyDataset


class Numbered(keras.utils.PyDataset):
    """Batches that say which one they are, and which hooks were called."""

    def __init__(self, count=5, **options):
        super().__init__(**options)
        self.count, self.told = count, []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return np.full((2, 3), index, "float32"), np.full(2, index)

    def on_epoch_begin(self):
        self.told.append("begin")

    def on_epoch_end(self):
        self.told.append("end")


def numbers(batches):
    return [int(batch.y[0]) for batch in batches]


def test_batches_of_a_py_dataset_are_shuffled_by_seed_and_epoch_alone():
    orders = set()
    for epoch in (0, 1):
        random.seed(epoch)
        found = numbers(source_of(Numbered(8), seed=3).epoch(epoch))
        assert sorted(found) == list(range(8))
        assert found == numbers(source_of(Numbered(8), seed=3).epoch(epoch))
        orders.add(tuple(found))
    assert len(orders) == 2
    assert numbers(source_of(Numbered(), shuffle=False).epoch(0)) == [0, 1, 2, 3, 4]
    assert numbers(source_of(Numbered(), shuffle=False).epoch(0, 3)) == [3, 4]


def test_hooks_are_called_as_keras_calls_them():
    ours, theirs = Numbered(), Numbered()
    source = source_of(ours)
    source.peek()
    assert ours.told == []
    trained(source, epochs=2)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    model.build((None, 3))
    model.fit(theirs, epochs=2, verbose=0)
    extra = len(theirs.told) - 5  # Keras may look at a first batch in an epoch of its own
    assert ours.told == ["end", "begin", "end", "begin", "end"] == theirs.told[extra:]


def test_a_py_dataset_with_fewer_steps_goes_on_in_the_next_epoch():
    source = source_of(Numbered(5), shuffle=False, steps_per_epoch=3)
    assert numbers(source.epoch(0)) == [0, 1, 2]
    with pytest.warns(UserWarning, match="ran out after 2 of the 3"):
        assert numbers(source.epoch(1)) == [3, 4]
    assert numbers(source.epoch(2)) == [0, 1, 2]


def test_a_py_dataset_without_an_end_goes_on_from_epoch_to_epoch():
    class Endless(Numbered):
        num_batches = None

    source = source_of(Endless(), steps_per_epoch=3)
    assert [numbers(source.epoch(epoch)) for epoch in range(2)] == [[0, 1, 2], [3, 4, 5]]
    assert numbers(source_of(Endless(), steps_per_epoch=3).epoch(4, 1)) == [13, 14]


def test_class_weights_reach_the_batches_of_a_py_dataset():
    batches = list(source_of(Numbered(3), shuffle=False, class_weight={1: 5.0}).epoch(0))
    assert [batch.sample_weight.tolist() for batch in batches] == [[1.0, 1.0], [5.0, 5.0], [1.0, 1.0]]


def test_several_threads_keep_the_order():
    class Slow(Numbered):
        def __getitem__(self, index):
            time.sleep(0.02 * (index % 3 == 0))
            names.add(threading.current_thread().name)
            return super().__getitem__(index)

    names = set()
    source = source_of(Slow(12, workers=3, max_queue_size=4), shuffle=False)
    assert numbers(source.epoch(0)) == list(range(12))
    assert len(names) > 1
    assert "workers=1" in source.resume_note
    batches = source.epoch(1)
    next(batches)
    batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fitroom")]


def test_processes_are_replaced_by_threads_with_a_warning():
    with pytest.warns(UserWarning, match="2 threads"):
        source = source_of(Numbered(workers=2, use_multiprocessing=True), shuffle=False)
    assert numbers(source.epoch(0)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("workers", [1, 3])
def test_errors_of_a_py_dataset_come_at_their_turn(workers):
    class Broken(Numbered):
        def __getitem__(self, index):
            if index == 2:
                raise OSError("unreadable")
            if index == 3:
                raise MemoryError("no more")
            return super().__getitem__(index)

    batches = source_of(Broken(workers=workers), shuffle=False).epoch(0)
    assert [int(next(batches).y[0]) for _ in range(2)] == [0, 1]
    with pytest.raises(OSError, match="unreadable"):
        next(batches)
    batches.close()
    batches = source_of(Broken(workers=workers), shuffle=False).epoch(0, 3)
    with pytest.raises(HostMemoryError, match="batch 3 was being made: no more"):
        next(batches)
    batches.close()


def test_an_empty_py_dataset_is_an_error():
    with pytest.raises(InputError, match="no batches"):
        source_of(Numbered(0))
    with pytest.raises(InputError, match="`sample_weight` belongs"):
        source_of(Numbered(), sample_weight=Y)


# Going on


class Reordered(keras.utils.PyDataset):
    """Shuffled in `on_epoch_end` the way that `how` names, with random noise on each batch."""

    def __init__(self, how):
        super().__init__()
        self.how, self.x, self.batches_made = how, X.copy(), 0
        self.order = np.arange(10)
        self.own = np.random.default_rng(8)
        self.older, self.plain = np.random.RandomState(4), random.Random(4)
        if how == "unseeded from the start":
            np.random.shuffle(self.order)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        self.batches_made += 1
        rows = self.x[self.order[3 * index : 3 * index + 3]]
        noise = np.random.normal() + random.random() + self.plain.random() + self.older.normal()
        return rows + noise + self.own.normal() + 100.0 * self.batches_made, rows[:, 0]

    def on_epoch_end(self):
        if self.how == "the data":
            self.x = self.x[np.random.permutation(10)]
        elif self.how == "own generator":
            self.own.shuffle(self.order)
        elif self.how == "a list":
            self.order = list(self.order)
            random.shuffle(self.order)
        else:
            np.random.shuffle(self.order)


@pytest.mark.parametrize("how", ["an order", "unseeded from the start", "the data", "own generator", "a list"])
def test_a_py_dataset_goes_on_exactly_however_it_shuffles(how):
    check_goes_on_exactly(lambda: source_of(Reordered(how), seed=1))


@pytest.fixture
def folder(tmp_path):
    from PIL import Image

    drawn = np.random.default_rng(3)
    for number in range(11):
        place = tmp_path / f"class{number % 2}"
        place.mkdir(exist_ok=True)
        pixels = drawn.integers(0, 255, (8, 8, 3), "uint8")
        pixels[0, 0] = number
        Image.fromarray(pixels).save(place / f"{number}.png")
    return tmp_path


def pictures(folder, **options):
    from keras.src.legacy.preprocessing.image import ImageDataGenerator  # keras.preprocessing.image is not in all

    augmented = ImageDataGenerator(horizontal_flip=True, brightness_range=(0.5, 1.5))
    return augmented.flow_from_directory(folder, target_size=(8, 8), batch_size=4, class_mode="sparse", **options)


def test_a_folder_of_pictures_comes_once_an_epoch(folder):
    from keras.src.legacy.preprocessing.image import ImageDataGenerator

    plain = ImageDataGenerator().flow_from_directory(folder, target_size=(8, 8), batch_size=4, class_mode="sparse")
    source = source_of(plain)
    assert (source.num_batches, source.batch_size, source.num_samples) == (3, 4, 11)
    for epoch in range(2):
        found = [int(picture[0, 0, 0]) for batch in source.epoch(epoch) for picture in batch.x]
        assert sorted(found) == list(range(11))
        source.on_epoch_end()


@pytest.mark.parametrize("seed", [None, 5])
def test_a_folder_of_pictures_goes_on_exactly(folder, seed):
    check_goes_on_exactly(lambda: source_of(pictures(folder, seed=seed), seed=1), epochs=2)


# Random state


def test_random_state_of_keras_comes_back():
    keras.utils.set_random_seed(3)
    before = randomness.capture()
    first = [keras.ops.convert_to_numpy(keras.random.normal((2,))).tolist() for _ in range(2)]
    between = randomness.capture()
    second = keras.ops.convert_to_numpy(keras.random.normal((2,))).tolist()
    randomness.restore(between)
    assert keras.ops.convert_to_numpy(keras.random.normal((2,))).tolist() == second
    randomness.restore(before)
    assert [keras.ops.convert_to_numpy(keras.random.normal((2,))).tolist() for _ in range(2)] == first


def test_a_seed_generator_of_a_dataset_comes_back():
    class Drawn(keras.utils.PyDataset):
        def __init__(self):
            super().__init__()
            self.seeds = keras.random.SeedGenerator(7)

        def __len__(self):
            return 3

        def __getitem__(self, index):
            return keras.ops.convert_to_numpy(keras.random.normal((2, 3), seed=self.seeds)), np.arange(2)

    check_goes_on_exactly(lambda: source_of(Drawn(), seed=1), epochs=2)
