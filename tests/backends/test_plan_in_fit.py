"""`fitroom.fit` with a plan, on a real framework."""

import keras
import numpy as np
import pytest
from keras import layers

import fitroom
from fit_cases import momentum
from fitroom.planning.identity import model_digest
from sample_plans import sample_plan
from stopped_training import Stop, StopAt

OPTIONS = {"batch_size": 16, "epochs": 2, "shuffle": False, "verbose": 0, "seed": 5}


@keras.saving.register_keras_serializable()
class RunsOut(layers.Layer):
    """Raises out of memory as often as `left` says. PLANTED: the framework itself does not run out here."""

    left = 0

    def call(self, x, training=False):
        if training and RunsOut.left:
            RunsOut.left -= 1
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1.0GiB (planted)")
        return x


def residual_net(*, classes=3, optimizer=None):
    """Blocks whose layers Keras names and counts, so that a second model's have other names."""
    keras.utils.set_random_seed(7)
    x = keras.Input((6, 6, 3))
    y = layers.Conv2D(4, 3, padding="same")(x)
    for _ in range(2):
        inner = layers.Conv2D(4, 3, padding="same", activation="relu")(y)
        y = layers.Add()([y, layers.Conv2D(4, 3, padding="same")(inner)])
    model = keras.Model(x, layers.Dense(classes)(layers.GlobalAveragePooling2D()(RunsOut()(y))))
    model.compile(optimizer or momentum(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def samples(number=48):
    random = np.random.default_rng(0)
    return random.normal(size=(number, 6, 6, 3)).astype("float32"), random.integers(0, 3, number).astype("int32")


def segments_of(model):
    adds = [layer.name for layer in model.layers if isinstance(layer, layers.Add)]
    convolutions = [layer.name for layer in model.layers if isinstance(layer, layers.Conv2D)]
    return fitroom.Remat(segments=[(convolutions[1], adds[0]), (convolutions[3], adds[1])])


def plan_for(model, **changes):
    """The whole batch with two segments recomputed; below it blocks, then parts of 8."""
    return sample_plan(
        **{
            "recipe": fitroom.Recipe(remat=segments_of(model)),
            "batch_size": 16,
            "micro_batch": 16,
            "fallbacks": (fitroom.Recipe(remat="blocks"), fitroom.Recipe(remat="blocks", micro_batch=8)),
            "backend": keras.backend.backend(),
            "model": model.name,
            "model_digest": model_digest(model),
        }
        | changes
    )


def fitted(*, model=None, **options):
    model = model or residual_net()
    history = fitroom.fit(model, *samples(), **OPTIONS | options)
    return model, history.fitroom


def weights_of(model):
    return [np.array(keras.ops.convert_to_numpy(v)) for v in [*model.variables, *model.optimizer.variables]]


def assert_same(one, other, **tolerance):
    for a, b in zip(weights_of(one), weights_of(other), strict=True):
        np.testing.assert_allclose(a, b, **tolerance or {"rtol": 2e-4, "atol": 2e-6})


@pytest.fixture(autouse=True)
def enough_memory():
    RunsOut.left = 0


def test_a_plan_is_carried_out_to_the_weights_of_the_plain_training():
    expected, _ = fitted()
    model = residual_net()
    plan = plan_for(model)
    _, found = fitted(model=model, plan=plan)
    assert_same(model, expected)
    assert found["recipe"] == {"remat": segments_of(model).to_dict()}
    assert found["plan"] == plan.to_dict()
    assert found["micro_batch"] is None


@pytest.mark.quick_on("torch")
def test_without_a_plan_the_recipe_is_told_as_well():
    _, found = fitted(recipe=fitroom.Recipe(micro_batch=8))
    assert (found["recipe"], found["plan"]) == ({"micro_batch": 8}, None)


@pytest.mark.quick_on("torch")
def test_a_saved_plan_serves_the_same_model_built_again_though_keras_counts_its_layers_on(tmp_path):
    first, again = residual_net(), residual_net()
    assert segments_of(first) != segments_of(again)
    plan_for(first).save(tmp_path / "plan.json")
    _, found = fitted(model=again, plan=tmp_path / "plan.json")
    assert found["recipe"] == {"remat": segments_of(again).to_dict()}
    assert_same(again, fitted()[0])


def test_running_out_takes_the_next_recipe_of_the_plan_and_the_result_is_the_same():
    expected, _ = fitted()
    model = residual_net()
    plan = plan_for(model)
    RunsOut.left = 1
    _, found = fitted(model=model, plan=plan)
    assert_same(model, expected)
    assert found["recipe"] == {"remat": "blocks"}
    [event] = found["events"]
    assert "the same batch again with blocks recomputed, micro-batch 16" in event["message"]
    RunsOut.left = 2
    model = residual_net()
    _, found = fitted(model=model, plan=plan_for(model))
    assert_same(model, expected)
    assert found["recipe"] == {"remat": "blocks", "micro_batch": 8}
    assert int(model.optimizer.iterations) == 6


@pytest.mark.quick_on("torch")
def test_a_run_that_goes_on_goes_on_with_the_recipe_in_force(tmp_path):
    def trained(run_dir, *, out_of_memory, callbacks=()):
        model = residual_net()
        RunsOut.left = out_of_memory
        return fitted(model=model, plan=plan_for(model), run_dir=run_dir, checkpoint_batches=1, callbacks=callbacks)

    expected, undisturbed = trained(tmp_path / "undisturbed", out_of_memory=2)
    with pytest.raises(Stop):
        trained(tmp_path / "run", out_of_memory=2, callbacks=[StopAt(4)])
    model, found = trained(tmp_path / "run", out_of_memory=0)
    assert found["recipe"] == undisturbed["recipe"] == {"remat": "blocks", "micro_batch": 8}
    assert found["out_of_memory"] == 2
    assert_same(model, expected, rtol=0, atol=0)


def test_a_plan_for_another_model_is_refused_and_the_difference_named():
    plan = plan_for(residual_net())
    with pytest.raises(fitroom.ModelError, match=f"another model. Expected: '{plan.model}'") as raised:
        fitted(model=residual_net(classes=15), plan=plan)
    assert "719 numbers there and 779 here" in raised.value.message
    assert "fitroom.plan(model, batch_size=16" in raised.value.hint


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"backend": "other"}, "the other backend"),
        ({"batch_size": 256}, "batches of 256, and the data are in batches of 16"),
        ({"recipe": fitroom.Recipe(optimizer="lion")}, "optimizer 'lion', and the model is compiled with SGD"),
        ({"recipe": fitroom.Recipe(image_size=12)}, r"images of 12 x 12, and the data are of shape \(6, 6, 3\)"),
        ({"recipe": fitroom.Recipe(keras_accumulation=2)}, "keras_accumulation, which `fit` cannot"),
        ({"fallbacks": (fitroom.Recipe(remat=fitroom.Remat(segments=[("head", "tail")])),)}, "Unknown layer"),
    ],
)
def test_a_plan_that_does_not_suit_the_training_is_refused_before_it_begins(changes, words):
    model = residual_net()
    with pytest.raises(fitroom.InputError, match=words) as raised:
        fitted(model=model, plan=plan_for(model, **changes))
    assert raised.value.hint
    assert int(model.optimizer.iterations) == 0


def test_what_only_the_user_can_turn_is_taken_when_it_is_turned():
    model = residual_net(optimizer="lion")
    recipe = fitroom.Recipe(optimizer="lion", image_size=6, input_dtype="uint8", remat="none", micro_batch=16)
    _, found = fitted(model=model, plan=plan_for(model, recipe=recipe))
    assert found["recipe"] == {}


def test_a_batch_that_is_shorter_than_the_plan_is_trained_whole():
    model = residual_net()
    fitroom.fit(model, *samples(10), **OPTIONS, plan=plan_for(model))
    assert int(model.optimizer.iterations) == 2


@pytest.mark.parametrize("others", [{"recipe": fitroom.Recipe()}, {"budget": "1GiB"}])
def test_a_plan_and_another_way_to_say_how_are_refused(others):
    with pytest.raises(fitroom.InputError, match=f"Received: .*{next(iter(others))}"):
        fitted(plan="plan.json", **others)


@pytest.mark.parametrize("plan", ["there_is_none.json", 16, {"recipe": {}}])
def test_what_is_no_plan_is_refused(plan):
    with pytest.raises(fitroom.InputError, match="plan"):
        fitted(plan=plan)


def test_a_precision_of_the_plan_is_that_of_the_training():
    model = residual_net()
    recipe = fitroom.Recipe(precision="mixed_bfloat16", remat="blocks")
    _, found = fitted(model=model, plan=plan_for(model, recipe=recipe))
    assert found["recipe"] == {"precision": "mixed_bfloat16", "remat": "blocks"}
    by_recipe, _ = fitted(recipe=recipe)
    assert_same(model, by_recipe, rtol=0, atol=0)


@pytest.mark.quick_on("torch")
def test_a_loop_of_ones_own_has_the_plan_and_its_ladder():
    expected, model = residual_net(), residual_net()
    x, y = samples(16)
    plain, step = fitroom.Step(expected), fitroom.Step(model, plan=plan_for(model))
    for out_of_memory in (2, 0, 0):
        plain(x, y)
        RunsOut.left = out_of_memory
        step(x, y)
    assert_same(model, expected)
    assert step.micro_batch == 8
    step(x[:5], y[:5])
    with pytest.raises(fitroom.InputError, match="batches of 48"):
        step(*samples(48))
    with pytest.raises(fitroom.InputError, match="Received: recipe and plan"):
        fitroom.Step(model, plan=plan_for(model), recipe=fitroom.Recipe())


def test_a_budget_makes_a_plan_says_it_and_a_run_keeps_it(tmp_path, monkeypatch):
    from fitroom.planning import plan as planning

    options = {"budget": "2GiB", "run_dir": tmp_path / "run", "checkpoint_batches": 1}
    with pytest.raises(Stop):
        fitted(**options, callbacks=[StopAt(4)])
    monkeypatch.setattr(planning, "plan", None)  # nobody plans anew
    model, found = fitted(**options)
    assert found["plan"]["recipe"]["batch_size"] == 16
    assert found["plan"]["budget"] == {"bytes": 2 * 2**30, "source": "given"}
    said = [event["message"] for event in found["events"] if event["kind"] == "plan"]
    assert said == [found["plan"]["why"]]
    assert_same(model, fitted()[0])
