"""A model that recomputes parts of itself trains as it does without.

Models are trained beside twins that recompute nothing.
"""

import importlib
from functools import cache

import keras
import numpy as np
import pytest

import fitroom
from fitroom.backends.choose import current_backend
from fitroom.keras_model.recompute import Rematerialisation
from fitroom.remat.graph import functional_of
from remat_cases import CASES, block, classifier, compiled, layers, pictures
from remat_comparison import assert_close, in_threes
from step_cases import state_of
from step_comparison import untraced

recompute_segment = importlib.import_module(
    f"fitroom.backends.{keras.config.backend()}.train.recompute"
).recompute_segment


def trained(model, batch, remat, *, micro_batch=None):
    """The logs of two updates, and the state after them."""
    stepper, logs = current_backend().stepper(model, jit=None, remat=remat), []
    for _ in range(2):
        model.reset_metrics()
        log = stepper.train(batch, micro_batch or batch.size)
        logs.append({name: float(keras.ops.convert_to_numpy(value)) for name, value in log.items()})
    return logs, state_of(model)


@cache
def expected_of(name):
    return trained(untraced(CASES[name].make()), CASES[name].data(), None)


@pytest.mark.parametrize("name", CASES)
def test_two_updates_are_those_of_plain_training(name):
    case = CASES[name]
    model = case.make()
    assert_close(trained(model, case.data(), in_threes(model)), expected_of(name), case)


def test_blocks_are_chosen_and_train_the_same():
    name = "residual, dropout, regularizer"
    assert_close(trained(CASES[name].make(), CASES[name].data(), "blocks"), expected_of(name), CASES[name])


def test_micro_batches_recompute_too():
    case = CASES["residual, dropout, regularizer"]
    batch = case.data()
    expected = trained(untraced(case.make()), batch, None, micro_batch=4)
    model = case.make()
    assert_close(trained(model, batch, in_threes(model), micro_batch=4), expected, case)


def test_every_segment_is_recomputed_in_training_and_none_in_prediction():
    model, batch = CASES["nested backbone"].make(), pictures()
    runs = []

    def counted(run, inputs, variables):
        runs.append((len(inputs), len(variables.trainable), len(variables.non_trainable), len(variables.seeds)))
        return recompute_segment(run, inputs, variables)

    segments = fitroom.Remat(segments=[("backbone/frozen_conv", "backbone/free_relu"), ("head_norm", "head_relu")])
    with Rematerialisation(model, segments, counted).during(batch.size):
        model(batch.x, training=False)
        assert runs == []
        call_in_training(model, batch.x)
    # The frozen block has a kernel and four weights of its normalisation that get no gradient.
    assert runs == [(1, 3, 7, 0), (1, 2, 2, 0)]


def call_in_training(model, x):
    trainable = [variable.value for variable in model.trainable_variables]
    others = [variable.value for variable in model.non_trainable_variables]
    model.stateless_call(trainable, others, x, training=True)


def test_the_model_stays_as_it_was_and_its_file_loads_in_plain_keras(tmp_path):
    model, batch = CASES["nested backbone"].make(), pictures()
    current_backend().stepper(model, jit=None).prepare(batch)
    attributes = {id(layer): set(vars(layer)) for layer in model._flatten_layers()}
    config = model.get_config()
    trained(model, batch, in_threes(model))
    left_by_keras = {"_loss_ids", "_losses_override", "_metrics"}
    for layer in model._flatten_layers():
        assert set(vars(layer)) - attributes[id(layer)] <= left_by_keras, layer.name
        assert "call" not in vars(layer)
        assert "add_loss" not in vars(layer)
    assert model.get_config() == config
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(batch.x, verbose=0), model.predict(batch.x, verbose=0), rtol=1e-5)


def test_a_step_that_fails_leaves_the_model_as_it_was():
    model, batch = CASES["chain"].make(), pictures()

    def failing(run, inputs, variables):
        raise MemoryError

    with pytest.raises(MemoryError), Rematerialisation(model, in_threes(model), failing).during(batch.size):
        call_in_training(model, batch.x)
    assert "call" not in vars(model)
    assert "_run_through_graph" not in vars(functional_of(model))
    assert_close(trained(model, batch, None), expected_of("chain"), CASES["chain"])


class Noisy(layers.Layer):
    """Random numbers without a generator of its own: Keras makes one for all such layers, when first asked."""

    def call(self, x):
        return x * keras.random.uniform(keras.ops.shape(x))


@pytest.mark.skipif(keras.config.backend() == "jax", reason="Keras wants a generator in each layer there")
def test_random_numbers_without_a_generator_are_drawn_the_same():
    states = []
    for remat in (None, fitroom.Remat(segments=[("stem_conv", "after_relu")])):
        keras.utils.set_random_seed(7)
        model = classifier(lambda x: block(Noisy(name="noisy")(block(x, "stem")), "after"))
        states.append(trained(model, pictures(), remat))
    assert_close(states[1], states[0], CASES["chain"])


def test_fit_takes_it_from_the_recipe():
    case = CASES["chain"]
    model, twin, batch = case.make(), case.make(), case.data()
    for each, remat in ((model, "blocks"), (twin, None)):
        recipe = fitroom.Recipe(remat=remat, micro_batch=4)
        fitroom.fit(each, batch.x, batch.y, batch_size=8, epochs=1, shuffle=False, verbose=0, recipe=recipe)
    assert_close(([], state_of(model)), ([], state_of(twin)), case)


def test_what_cannot_be_cut_says_so():
    class Plain(keras.Model):
        def __init__(self):
            super().__init__(name="plain")
            self.dense = layers.Dense(3)

        def call(self, x):
            return self.dense(x)

    model = compiled(Plain())
    with pytest.raises(fitroom.ModelError, match="no layer that it holds is made of others"):
        Rematerialisation(model, "blocks", recompute_segment).during(8)
    with pytest.raises(fitroom.ModelError, match="form no graph"):
        Rematerialisation(model, fitroom.Remat(budget="1GiB"), recompute_segment).during(8)
    with pytest.raises(fitroom.InputError, match="The smallest possible is about"):
        Rematerialisation(CASES["chain"].make(), fitroom.Remat(budget=1000), recompute_segment).during(8)
    with pytest.raises(fitroom.UnknownNameError, match="Unknown layer"):
        Rematerialisation(CASES["chain"].make(), fitroom.Remat(segments=["block9_conv"]), recompute_segment).during(8)
