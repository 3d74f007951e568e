"""`fitroom.fresh` gives a round's memory back; what is in use keeps its values."""

import gc
import weakref

import keras
import numpy as np
import pytest

import fitroom
from fit_cases import assert_same, weights_of
from fitroom.errors import InputError
from fitroom.train import earlier_models

X = np.random.default_rng(0).normal(size=(16, 8)).astype("float32")
Y = (X[:, :1] > 0).astype("float32")


def make_net():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def train(model, epochs=1):
    return model.fit(X, Y, batch_size=8, epochs=epochs, shuffle=False, verbose=0)


def train_round(kept):
    """A round as people write it: trains, and keeps weak references to what it made."""
    model = make_net()
    history = train(model)
    kept += [weakref.ref(model), weakref.ref(model.weights[0]), weakref.ref(model.optimizer)]
    return history.history["loss"][0]


def test_a_round_frees_its_model_and_says_so():
    kept = []
    with fitroom.fresh() as finished:
        loss = train_round(kept)
    assert np.isfinite(loss)
    assert [reference() for reference in kept] == [None, None, None]
    owners = {held.owner.split(" ")[0]: held.bytes for held in finished.freed}
    assert owners["model"] >= 4 * (8 * 32 + 32 + 32 + 1)
    assert owners["optimizer"] >= 2 * 4 * (8 * 32 + 32 + 32 + 1)
    assert finished.stayed_bytes == 0
    assert "stayed 0 B: nothing" in str(finished)
    assert "freed" in finished._repr_html_()


def test_a_kept_model_stays_with_its_values_and_its_holder_is_named():
    best = None
    with fitroom.fresh() as finished:
        best = make_net()
        train(best)
        expected = weights_of(best)
    assert_same(weights_of(best), expected)
    assert {held.owner.split(" ")[0] for held in finished.stayed} >= {"model", "optimizer"}
    assert "`best`, a variable of `test_a_kept_model" in finished.stayed[0].holder


def test_training_continues_bit_for_bit_across_blocks():
    """A teacher, an optimizer and a dataset from outside, a model kept from a block, and Keras's random state."""

    def run(block):
        keras.utils.set_random_seed(1)
        teacher, student = make_net(), make_net()
        for _ in range(2):
            with block():
                train(teacher)
                student.fit(X, teacher.predict(X, verbose=0), batch_size=8, shuffle=False, verbose=0)
                drawn = keras.ops.convert_to_numpy(keras.random.normal((3,)))
        with block():
            kept = make_net()
            train(kept)
        train(kept)
        return [*weights_of(teacher), *weights_of(student), *weights_of(kept), drawn]

    class NoBlock:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

    assert_same(run(fitroom.fresh), run(NoBlock))


def test_settings_and_names_of_keras_outlast_a_block():
    keras.config.set_dtype_policy("mixed_bfloat16")
    before = keras.layers.Dense(1).name
    with fitroom.fresh():
        keras.layers.Dense(1)
    after = keras.layers.Dense(1).name
    assert keras.config.dtype_policy().name == "mixed_bfloat16"
    assert int(after.rpartition("_")[2]) == int(before.rpartition("_")[2] or 0) + 2 if "_" in before else True
    assert after != before


def test_an_error_leaves_the_block_with_its_message_and_without_its_tensors():
    kept = []

    def fail():
        model = make_net()
        kept.append(weakref.ref(model))
        raise ValueError("fold 3 has no samples")

    with pytest.raises(ValueError, match="fold 3 has no samples") as caught, fitroom.fresh() as finished:
        fail()
    assert caught.value.__traceback__ is not None
    assert kept[0]() is None
    assert finished.is_over


def test_blocks_may_be_nested():
    kept = []
    with fitroom.fresh() as outer:
        model = make_net()
        with fitroom.fresh() as inner:
            train_round(kept)
        assert kept[0]() is None
        train(model)
        del model
    assert inner.freed_bytes > 0
    assert outer.stayed_bytes == 0


def test_each_call_of_a_decorated_function_is_a_round():
    kept = []

    @fitroom.fresh()
    def fold(number):
        """One fold."""
        return number, train_round(kept)

    assert fold(3)[0] == 3
    assert fold.__doc__ == "One fold."
    assert kept[0]() is None


def test_a_block_is_entered_once():
    block = fitroom.fresh()
    with block as finished:
        assert "not over" in str(finished)
    with pytest.raises(InputError, match="can be entered once"), block:
        pass


@pytest.mark.backends("tensorflow")
def test_tables_and_datasets_from_outside_keep_working():
    import tensorflow as tf

    lookup = keras.layers.StringLookup(vocabulary=["rose", "tulip"])
    batches = iter(tf.data.Dataset.range(6).shuffle(6, seed=1).batch(2))
    function = tf.function(lambda x: x * 2)
    first = (lookup(["tulip"]).numpy().tolist(), function(tf.constant(2.0)).numpy())
    seen = next(batches).numpy().tolist()
    with fitroom.fresh():
        train_round([])
    assert (lookup(["tulip"]).numpy().tolist(), function(tf.constant(2.0)).numpy()) == first
    assert sorted(seen + next(batches).numpy().tolist() + next(batches).numpy().tolist()) == list(range(6))


@pytest.mark.backends("tensorflow")
def test_gradients_of_a_function_in_use_stay_registered():
    import tensorflow as tf

    @tf.custom_gradient
    def doubled(x):
        return x * 2, lambda upstream: upstream * 7

    with fitroom.fresh():
        concrete = tf.function(doubled).get_concrete_function(tf.constant(1.0))
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = concrete(x)
    assert tape.gradient(y, x).numpy() == 7


@pytest.mark.backends("tensorflow")
def test_a_round_says_that_programs_of_xla_stay():
    def notes_of(jit):
        with fitroom.fresh() as finished:
            model = make_net()
            model.compile("sgd", "mse", jit_compile=jit)  # not trained: XLA takes long to compile even this
        return finished.notes

    outside = make_net()
    outside.compile("sgd", "mse", jit_compile=True)
    assert "jit_compile=False" in "".join(notes_of(jit=True))
    assert notes_of(jit=False) == ()


@pytest.mark.backends("jax")
def test_of_jaxs_caches_only_those_that_grow_and_may_be_emptied_are(monkeypatch):
    import functools

    import jax
    from jax._src import util

    from fitroom.backends.jax import rounds

    monkeypatch.setattr(rounds, "_ROUNDS_TO_GROW", 2)

    @util.cache()
    def traced(number):
        return number

    @util.cache()
    def settled(number):
        return number

    @functools.cache
    def own(number):
        return [number]

    own.__module__ = "jax_zoo.models"
    compiled = jax.jit(lambda x: x + 1)
    compiled(1.0)
    kept = own(0), settled(0)
    for number in range(3):
        end_round = rounds.begin_round()
        traced(number)
        own(number)
        end_round()
    assert traced.cache_info().currsize == 1  # it was emptied once, after the second round
    gc.freeze()  # as `leaks` does; the collector lists none of these any more
    rounds.begin_round()()  # a round without growth, from which the rounds that grow are counted anew
    for number in range(3, 5):
        end_round = rounds.begin_round()
        traced(number)
        end_round()
    assert traced.cache_info().currsize == 0
    assert own.cache_info().currsize == 3
    assert own(0) is kept[0]
    assert settled.cache_info().currsize == 1
    assert compiled._cache_size() == 1


@pytest.mark.backends("torch")
def test_the_last_gradients_of_a_kept_model_are_freed():
    with fitroom.fresh():
        model = make_net()
        train(model)
    assert all(weight.value.grad is None for weight in model.weights)


@pytest.fixture
def small_models_matter(monkeypatch):
    monkeypatch.setattr(earlier_models, "_MATTERS_BYTES", 1)
    monkeypatch.setattr(earlier_models, "_said", False)
    monkeypatch.setattr(earlier_models, "_fitted", [])


def hints_of_rounds(keep):
    said = []
    for _ in range(6):
        model = make_net()
        history = fitroom.fit(model, X, Y, batch_size=8, verbose=0)
        keep(model, history)
        said += [event["message"] for event in history.fitroom["events"] if event["kind"] == "earlier_models"]
        del model, history
    return said


def test_fit_points_to_the_how_to_once_where_histories_hold_models(small_models_matter):
    histories = []
    said = hints_of_rounds(lambda model, history: histories.append(history))
    assert len(said) == 1
    assert "training_in_a_loop.md" in said[0]


def test_fit_says_nothing_of_an_ensemble_or_of_models_that_went(small_models_matter):
    ensemble = []
    assert hints_of_rounds(lambda model, history: ensemble.append(model)) == []
    assert hints_of_rounds(lambda model, history: None) == []
    gc.collect()


@pytest.mark.backends("torch")
def test_fake_tensors_of_an_estimate_do_not_count_as_arrays():
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.zeros(2**20)
    with fitroom.fresh() as finished:
        pass
    assert fake.shape == (2**20,)
    assert finished.stayed == ()
