"""Models served by `fitroom.protect` beside Keras's own methods."""

import contextlib

import keras
import numpy as np
import pytest
from keras import layers, ops

import fitroom
from fitroom.backends.choose import current_backend
from fitroom.train.protect import CALLS, Call, unprotect

BACKEND = keras.backend.backend()
if BACKEND == "tensorflow":
    import tensorflow as tf

X = np.random.default_rng(0).random((10, 4)).astype("float32")
Y = X[:, :2] * 2


@contextlib.contextmanager
def served():
    """Keras's methods served by fitroom for a while."""
    fitroom.protect()
    try:
        yield
    finally:
        unprotect()


def both(do):
    """What `do` gives with Keras's own methods, and what it gives when they are served."""
    keras.utils.set_random_seed(3)
    plain = do()
    keras.utils.set_random_seed(3)
    CALLS.clear()
    with served():
        found = do()
    assert CALLS
    assert all(call.left_to_keras is None for call in CALLS)
    return plain, found


def dense_net(**options):
    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, activation="tanh"), layers.Dense(2)])
    model.compile("sgd", "mse", metrics=["mae"], **options)
    return model


class Watched(keras.Model):
    """A model with steps of its own, which write down what they were handed: nests and whether leaves are tensors."""

    def __init__(self, seen, **options):
        super().__init__(**options)
        self.dense = layers.Dense(4)
        self.write_down = seen.append  # a list itself Keras would wrap

    def call(self, x, training=False):
        x = x["a"] if isinstance(x, dict) else x[0] if isinstance(x, list | tuple) else x
        outputs = self.dense(x)
        self.add_loss(ops.mean(ops.square(outputs)))
        return outputs

    def note(self, step, data):
        self.write_down(
            (step, str(keras.tree.map_structure(lambda leaf: leaf if leaf is None else len(leaf.shape), data)))
        )
        return data if not isinstance(data, tuple | list) or len(data) < 4 else data[:1]

    if BACKEND == "jax":

        def train_step(self, state, data):
            return super().train_step(state, self.note("train", data))

        def test_step(self, state, data):
            return super().test_step(state, self.note("test", data))

        def predict_step(self, state, data):
            return super().predict_step(state, self.note("predict", data))

    else:

        def train_step(self, data):
            return super().train_step(self.note("train", data))

        def test_step(self, data):
            return super().test_step(self.note("test", data))

        def predict_step(self, data):
            return super().predict_step(self.note("predict", data))


class Batches(keras.utils.PyDataset):
    def __init__(self, batch):
        super().__init__()
        self.batch = batch

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.batch


def stream(*batch):
    return lambda: (batch for _ in range(2))


def loader(*arrays):
    import torch

    def make():
        tensors = torch.utils.data.TensorDataset(*map(torch.tensor, arrays))
        return torch.utils.data.DataLoader(tensors, batch_size=5)

    return make


def tf_data(data):
    return lambda: tf.data.Dataset.from_tensor_slices(data).batch(5)


SOURCES = {
    "an array": lambda: X,
    "a list of arrays": lambda: [X, X],
    "a dict of arrays": lambda: {"a": X, "b": X},
    "a generator of (x,)": stream(X),
    "a generator of (x, y)": stream(X, Y),
    "a generator of (x, y, weights)": stream(X, Y, X[:, 0]),
    "a generator of nested inputs": stream((X, X), Y),
    "a PyDataset of x": lambda: Batches(X),
    "a PyDataset of [x, y]": lambda: Batches([X, Y]),
    "a PyDataset of a dict": lambda: Batches({"a": X, "b": X}),
}
if BACKEND == "tensorflow":
    SOURCES |= {
        "tf.data of x": tf_data(X),
        "tf.data of (x,)": tf_data((X,)),
        "tf.data of a dict": tf_data({"a": X, "b": X}),
        "tf.data of four parts": tf_data((X, Y, X, X)),
        "a generator of four parts": stream(X, Y, X, X),
    }
if BACKEND == "torch":
    SOURCES |= {"a DataLoader of [x]": loader(X), "a DataLoader of [x, y]": loader(X, Y)}
OF_ALL_BACKENDS = ("an array", "a generator of nested inputs")


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(name, marks=[] if "tf.data" in name or name in OF_ALL_BACKENDS else pytest.mark.quick_on("torch"))
        for name in SOURCES
    ],
)
def test_a_models_own_steps_receive_what_keras_hands_over(source):
    def do():
        seen = []
        model = Watched(seen)
        model.compile("sgd")
        losses = model.fit(SOURCES[source](), verbose=0, shuffle=False).history["loss"]
        model.evaluate(SOURCES[source](), verbose=0)
        outputs = model.predict(SOURCES[source](), verbose=0)
        return sorted(set(seen)), losses, outputs

    (plain, losses, outputs), (found, our_losses, our_outputs) = both(do)
    assert found == plain
    np.testing.assert_allclose(our_losses, losses, rtol=1e-5)
    np.testing.assert_allclose(our_outputs, outputs, rtol=1e-4)


def test_train_on_batch_hands_over_all_three_parts():
    def do():
        seen = []
        model = Watched(seen)
        model.compile("sgd")
        model.train_on_batch(X)
        model.test_on_batch(X, None)
        return sorted(set(seen))

    plain, found = both(do)
    assert found == plain


class Told(keras.callbacks.Callback):
    """Writes down which batches it was told of."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def __getattribute__(self, name):
        if name.startswith("on_") and "batch" in name:
            return lambda batch, logs=None: self.heard.append((name, batch))
        return super().__getattribute__(name)


@pytest.mark.skipif(BACKEND == "torch", reason="Keras refuses `steps_per_execution` there")
@pytest.mark.parametrize("steps", [2, pytest.param(3, marks=pytest.mark.slow), 7])
def test_steps_per_execution_says_when_callbacks_are_called(steps):
    def do():
        model, told = dense_net(steps_per_execution=steps), Told()
        options = {"batch_size": 2, "verbose": 0, "callbacks": [told]}
        history = model.fit(X, Y, validation_data=(X, Y), shuffle=False, epochs=2, **options)
        return told.heard, history.history, model.predict(X, **options), told.heard

    plain, found = both(do)
    assert found[0] == plain[0]
    assert found[3] == plain[3]
    np.testing.assert_allclose(found[2], plain[2], rtol=1e-5)
    for name, values in plain[1].items():
        np.testing.assert_allclose(found[1][name], values, rtol=1e-5)


@pytest.mark.quick_on("torch")
@pytest.mark.filterwarnings("ignore:Limiting", "ignore:The data ran out", "ignore:Your input ran out")
def test_limits_for_short_runs_are_followed():
    def do():
        model, told = dense_net(), Told()
        history = model.fit(X, Y, batch_size=2, epochs=4, verbose=0, callbacks=[told])
        model.evaluate(X, Y, batch_size=2, verbose=0, callbacks=[told])
        return len(history.epoch), told.heard, len(model.predict(X, batch_size=2, verbose=0))

    keras.config.set_max_epochs(2)
    keras.config.set_max_steps_per_epoch(3)
    try:
        with pytest.warns(UserWarning, match="Limiting epochs to 2"):
            plain, found = both(do)
    finally:
        keras.config.set_max_epochs(None)
        keras.config.set_max_steps_per_epoch(None)
    assert found == plain
    assert found[0] == 2


def test_evaluate_predict_and_single_batches_give_what_keras_gives():
    def do():
        model = dense_net()
        found = [
            model.evaluate(X, Y, batch_size=3, verbose=0),
            model.evaluate(X, Y, sample_weight=X[:, 0], batch_size=4, verbose=0, return_dict=True),
            model.predict(X, batch_size=3, verbose=0),
            model.train_on_batch(X, Y),
            model.train_on_batch(X, Y, sample_weight=X[:, 0], return_dict=True),
            model.test_on_batch(X, Y, return_dict=True),
            model.test_on_batch(X, Y),
        ]
        return [dict(found[k]) if isinstance(found[k], dict) else {"": found[k]} for k in range(len(found))]

    for plain, found in zip(*both(do), strict=True):
        assert list(plain) == list(found)
        for name in plain:
            np.testing.assert_allclose(found[name], plain[name], rtol=1e-5)


class AlwaysDrops(layers.Layer):
    """Draws random numbers in prediction, too."""

    def __init__(self):
        super().__init__()
        self.generator = keras.random.SeedGenerator(1)

    def call(self, x):
        return keras.random.dropout(x, 0.5, seed=self.generator)


def test_prediction_works_without_compiling_and_moves_random_generators_as_keras_does():
    def do():
        keras.utils.set_random_seed(5)
        model = keras.Sequential([AlwaysDrops()])
        return [model.predict(X, batch_size=10, verbose=0) for _ in range(2)]

    plain, found = both(do)
    np.testing.assert_array_equal(found, plain)
    assert (found[0] != found[1]).any()


def test_models_of_several_outputs_are_predicted_in_their_structure():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, {"left": layers.Dense(2)(inputs), "right": [layers.Dense(3)(inputs)]})
    plain = model.predict(X, batch_size=4, verbose=0)
    with served():
        found = model.predict(X, batch_size=4, verbose=0)
    keras.tree.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, plain)


def test_a_size_found_in_evaluation_or_prediction_is_kept_and_changes_nothing_of_training(monkeypatch):
    """Memory for four samples, in evaluation and prediction alone."""
    backend = current_backend()
    stepper_class = type(backend.stepper(dense_net(), jit=None))
    sizes = []

    def with_room_for_four(method):
        real = getattr(stepper_class, method)

        def step(self, batch, micro_batch):
            sizes.append((method, min(micro_batch, batch.size)))
            if method != "train" and micro_batch > 4:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return real(self, batch, micro_batch)

        monkeypatch.setattr(stepper_class, method, step)

    model = dense_net()
    plain = [model.evaluate(X, Y, batch_size=10, verbose=0), model.predict(X, batch_size=10, verbose=0)]
    for method in ("train", "test", "predict_batch"):
        with_room_for_four(method)
    with served():
        found = [model.evaluate(X, Y, batch_size=10, verbose=0), model.predict(X, batch_size=10, verbose=0)]
        model.evaluate(X, Y, batch_size=10, verbose=0)
        model.train_on_batch(X, Y)
        model.fit(X, Y, batch_size=10, verbose=0)
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    tested, predicted = ([size for name, size in sizes if name == wanted] for wanted in ("test", "predict_batch"))
    assert tested == [10, 5, 3, 3]
    assert predicted == [10, 5, 3]
    assert [size for name, size in sizes if name == "train"] == [10, 10]


@pytest.mark.quick_on("torch")
def test_standard_losses_callbacks_and_inputs_on_one_device_are_never_left_to_keras(tmp_path):
    CALLS.clear()
    path = tmp_path / "model.weights.h5"
    callbacks = [
        keras.callbacks.EarlyStopping(monitor="loss"),
        keras.callbacks.ReduceLROnPlateau(monitor="loss"),
        keras.callbacks.ModelCheckpoint(path, monitor="loss", save_weights_only=True),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate),
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
    ]
    with served():
        for loss in ("mse", "huber", keras.losses.CosineSimilarity()):
            model = dense_net()
            model.compile("adam", loss)
            model.fit(X, Y, validation_split=0.2, callbacks=callbacks, verbose=0)
        for source in (stream(X, Y), lambda: Batches((X, Y))):
            model.fit(source(), verbose=0)
            model.evaluate(source(), verbose=0)
            model.predict(source(), verbose=0)
    assert dict(CALLS) == {
        Call(method="fit", left_to_keras=None): 5,
        Call(method="evaluate", left_to_keras=None): 2,
        Call(method="predict", left_to_keras=None): 2,
    }


def test_several_devices_of_the_users_own_are_served():
    if BACKEND == "torch":
        pytest.skip("Keras trains on one device there")
    CALLS.clear()
    if BACKEND == "tensorflow":
        with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
            model = dense_net()
    else:
        import jax

        mesh = keras.distribution.DeviceMesh((2,), ["batch"], jax.devices("cpu")[:2])
        keras.distribution.set_distribution(keras.distribution.DataParallel(device_mesh=mesh))
        model = dense_net()
    try:
        with served():
            model.fit(X, Y, verbose=0)
    finally:
        keras.distribution.set_distribution(None)
    assert dict(CALLS) == {Call(method="fit", left_to_keras=None): 1}


def test_a_model_that_runs_its_batches_itself_is_left_to_keras():
    class Own(keras.Model):
        def call(self, x):
            return x

        def make_train_function(self, force=False):
            raise NotImplementedError("asked for by Keras")

    model = Own()
    model.compile("sgd", "mse")
    CALLS.clear()
    with served(), pytest.raises(NotImplementedError, match="asked for by Keras"):
        model.fit(X, X, verbose=0)
    assert dict(CALLS) == {Call(method="fit", left_to_keras="the model brings its own `make_train_function`"): 1}


class Halves(keras.Model):
    """Halves its inputs in a `fit` of its own, as KerasHub's tasks preprocess."""

    def fit(self, x=None, y=None, **options):
        return super().fit(x / 2, y, **options)


@pytest.mark.quick_on("torch")
def test_a_fit_of_the_models_own_is_served_and_never_left_out():
    def make():
        keras.utils.set_random_seed(1)
        inputs = keras.Input((3,))
        model = Halves(inputs, layers.Dense(1)(inputs))
        model.compile("sgd", "mse")
        return model

    x, y = np.ones((8, 3), "float32"), np.ones((8, 1), "float32")
    with pytest.raises(fitroom.ModelError, match="has a `fit` of its own, in Halves"):
        fitroom.fit(make(), x, y, verbose=0)
    plain = make().fit(x, y, verbose=0).history["loss"]
    fitroom.protect()
    served = make().fit(x, y, verbose=0)
    assert served.history["loss"] == plain
    assert hasattr(served, "fitroom")
