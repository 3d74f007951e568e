"""The other ways to carry out a step on TensorFlow: in two programs, jitted, eager.

Small models keep Keras's own step; here they are taken for large ones.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from failing_steps import PARTS_OF_SEVEN, PLACES, WHOLE, check_that_a_failed_step_leaves_every_bit
from fitroom.backends.choose import current_backend
from fitroom.backends.tensorflow.train import stepper as stepper_module
from fitroom.backends.tensorflow.train.host import as_tensors
from fitroom.backends.tensorflow.train.micro_batches import StepFunctions
from fitroom.batch import Batch
from fitroom.keras_model.objective import Objective
from step_cases import CASES, FIRST, MICRO_BATCHES, dense, dense_batch, state_of
from step_comparison import assert_close, assert_identical, expected_of, numbers, trained_by_keras


@pytest.fixture(autouse=True)
def as_if_large(monkeypatch):
    monkeypatch.setattr(stepper_module, "SMALL_BYTES", -1)


def trained(model, micro_batch, *batches, jit=None):
    stepper, logs = current_backend().stepper(model, jit=jit), []
    for batch in batches:
        model.reset_metrics()
        logs.append(numbers(stepper.train(batch, micro_batch)))
    return logs, state_of(model)


@pytest.mark.parametrize(
    ("place", "micro_batch"),
    [
        *(pytest.param(place, PARTS_OF_SEVEN, id=f"{place}-cut") for place in PLACES),
        pytest.param("update", WHOLE, id="update-whole"),
        *(
            pytest.param(place, WHOLE, id=f"{place}-whole", marks=pytest.mark.slow)
            for place in PLACES
            if place != "update"
        ),
    ],
)
def test_a_step_in_two_programs_that_fails_leaves_every_bit_as_it_was(place, micro_batch):
    check_that_a_failed_step_leaves_every_bit(place, micro_batch)


@pytest.mark.parametrize("name", ["plain", "mixed precision", "weights without gradient"])
def test_two_programs_do_what_kerass_own_step_does(name):
    case = CASES[name]
    expected_logs, expected = trained_by_keras(case.make(), *case.batches(), traced=True)
    logs, state = trained(case.make(), FIRST, *case.batches())
    assert_identical(state, expected)
    assert logs == [pytest.approx(each) for each in expected_logs]


@pytest.mark.parametrize(
    ("name", "num_parts"),
    [
        ("plain", 1),
        *((name, 3) for name in ("plain", "masks", "two outputs", "mixed precision")),
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in ("masks", "two outputs", "mixed precision")),
    ],
)
def test_jitted_steps_are_those_of_the_whole_batch(name, num_parts):
    case = CASES[name]
    expected_logs, expected = expected_of(name)
    batch, _ = case.batches()
    model = case.make()
    logs, _ = trained(model, MICRO_BATCHES[num_parts], batch, jit=True)
    assert_close(logs[0], expected_logs[0], rtol=2e-3, atol=1e-5)
    assert state_of(model).keys() == expected.keys()


def test_an_eager_model_is_trained_eagerly():
    calls = []

    class Watched(layers.Layer):
        def call(self, x):
            calls.append(tf.executing_eagerly())
            return x

    def model(**arguments):
        keras.utils.set_random_seed(7)
        made = keras.Sequential([keras.Input((6,)), Watched(), layers.Dense(3)])
        made.compile(keras.optimizers.SGD(0.1), "mse", **arguments)
        return made

    batch = dense_batch(FIRST)
    _, expected = trained(model(), 7, batch)
    eager = model(run_eagerly=True)
    calls.clear()
    _, state = trained(eager, 7, batch)
    assert calls.count(True) == 3
    assert_close(state, expected)


def test_sparse_and_ragged_inputs_can_be_cut_too():
    class Counted(layers.Layer):
        """Sums of what each sample has, whatever holds it."""

        def call(self, x):
            if isinstance(x, tf.RaggedTensor):
                return tf.reduce_sum(x, axis=1, keepdims=True)
            return tf.reshape(tf.sparse.reduce_sum(x, axis=1), (-1, 1)) if isinstance(x, tf.SparseTensor) else x

    rows = np.random.default_rng(1).random((8, 5)).astype("float32")
    targets = rows.sum(axis=1, keepdims=True) * 2
    whole = keras.ops.convert_to_tensor(rows.sum(axis=1, keepdims=True))
    kinds = {"sparse": tf.sparse.from_dense(rows), "ragged": tf.RaggedTensor.from_tensor(rows), "dense": whole}

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.counted, self.out = Counted(), layers.Dense(1)
            self.out.build((None, 1))

        def call(self, x):
            return self.out(self.counted(x))

    states = {}
    for name, x in kinds.items():
        keras.utils.set_random_seed(7)
        model = Model()
        model.built = True
        model.compile(keras.optimizers.SGD(0.1), "mse")
        states[name] = trained(model, 3, Batch(x=x, y=targets))[1]
    assert_close(states["sparse"], states["dense"])
    assert_close(states["ragged"], states["dense"])


def test_words_can_be_cut_too():
    lookup = layers.StringLookup(vocabulary=["a", "b", "c"])
    keras.utils.set_random_seed(7)
    inputs = keras.Input((2,), dtype="string")
    outputs = layers.Dense(1)(layers.Flatten()(layers.Embedding(5, 3)(lookup(inputs))))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse")
    words = np.array([["a", "b"], ["c", "x"], ["b", "b"], ["a", "c"], ["c", "c"]], dtype=object)
    logs, _ = trained(model, 2, Batch(x=tf.constant(words), y=np.ones((5, 1), "float32")))
    assert np.isfinite(logs[0]["loss"])


def test_a_batch_is_brought_ahead_to_the_host_alone():
    stepper = current_backend().stepper(dense(), jit=None)
    ahead = stepper.prefetch(dense_batch(FIRST))
    assert ahead.x.device.endswith("CPU:0")
    assert stepper.prefetch(ahead).x is ahead.x


def test_a_batch_on_two_replicas_trains_as_on_one():
    cpu = tf.config.list_logical_devices("CPU")
    assert len(cpu) == 2
    # TensorFlow's collectives on CPUs take a second strategy of a process for the first.
    without_collectives = tf.distribute.ReductionToOneDevice()
    with tf.distribute.MirroredStrategy([each.name for each in cpu], cross_device_ops=without_collectives).scope():
        model = dense()
    logs = current_backend().stepper(model, jit=None).train(dense_batch(FIRST), FIRST)
    expected = current_backend().stepper(dense(), jit=None).train(dense_batch(FIRST), FIRST)
    assert float(logs["loss"]) == pytest.approx(float(expected["loss"]), rel=1e-5)


def test_gradients_come_in_the_order_of_the_backward_pass():
    model = dense()
    batch = dense_batch(FIRST)
    model._symbolic_build(data_batch=batch.data())
    gradients, _ = StepFunctions(model, Objective(model)).gradients(as_tensors(batch).data())
    assert [each.shape for each in gradients] == [each.shape for each in reversed(model.trainable_weights)]


@pytest.mark.parametrize("micro_batch", [8, 4], ids=["whole", "cut"])
def test_batches_of_many_sizes_share_few_graphs(micro_batch):
    traced = []

    class Noted(layers.Layer):
        def call(self, x):
            traced.append(x.shape)
            return x

    model = keras.Sequential([keras.Input((None, 2)), Noted(), layers.GlobalAveragePooling1D(), layers.Dense(1)])
    model.compile("sgd", "mse")
    stepper = current_backend().stepper(model, jit=False)
    for length in range(3, 15):
        batch = Batch(x=np.ones((8, length, 2), "float32"), y=np.ones((8, 1), "float32"))
        if length == 4:
            traced.clear()  # what building the model took
        stepper.train(batch, micro_batch)
        stepper.test(batch, micro_batch)
    assert 0 < len(traced) <= 10
