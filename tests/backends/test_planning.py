"""The planner on small models of Keras, with scripted estimates: so many times what the rules count."""

import sys
from dataclasses import replace
from itertools import pairwise

import keras
import pytest

import fitroom
from fitroom.budget import Budget
from fitroom.cards.catalogue import find_card
from fitroom.errors import InputError, ModelError, NothingFitsError
from fitroom.keras_model.private import skip_tensorflow_types
from fitroom.planning.cards import plan_for_cards
from fitroom.planning.identity import describe_difference, model_digest
from fitroom.planning.planner import Planner
from fitroom.planning.request import PlanRequest
from fitroom.planning.shared_recipe import try_recipe
from fitroom.planning.target import Target
from fitroom.train.planned import recipes_of
from planning_models import MIB, dense_net, residual_net
from sample_estimates import small_estimate

# Estimates are scripted, or real where it says so: then of the backend whose estimates are the quickest. JAX and
# TensorFlow plan in tests/backends/test_estimates.py and tests/backends/jax/test_planning.py.
pytestmark = pytest.mark.backends("torch")

KIB = 2**10


def too_small(image_size):
    raise ModelError(f"The net cannot be built at {image_size} x {image_size}.")


def small_net():
    """For real estimates: few layers, so that they are quick."""
    layers = keras.layers
    x = inputs = keras.Input((32, 32, 3))
    for _ in range(3):
        x = layers.Activation("relu")(layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same")(x)))
    return keras.Model(inputs, layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


def plain_net():
    """For many real estimates: of the fewest operations that leave something to recompute."""
    x = inputs = keras.Input((8192, 16))
    for _ in range(4):
        x = keras.layers.Dense(16, activation="tanh")(x)
    model = keras.Model(inputs, keras.layers.Dense(5)(keras.layers.GlobalAveragePooling1D()(x)))
    model.compile("sgd", "mse")
    return model


class Scripted:
    """In place of a framework: so many times what the rules count, and a little that does not grow."""

    def __init__(self, factor=1.4, recomputed_factor=1.6):
        self.factor, self.recomputed_factor = factor, recomputed_factor
        self.asked = []

    def __call__(self, candidate):
        self.asked.append(candidate)
        factor = self.recomputed_factor if candidate.recomputes else self.factor
        needed = int(factor * candidate.counted_bytes) + MIB
        return replace(
            small_estimate(), required_bytes=needed, peak_bytes=needed - MIB, recipe=candidate.recipe, notes=()
        )


def planner(budget_bytes, model=None, *, scripted=None, gpu="L4", **asked):
    room = Target(budget=Budget(bytes=budget_bytes, source="given"), card=find_card(gpu))
    question = PlanRequest(model=model or residual_net(), **{"batch_size": 64} | asked)
    return Planner(question, room, lambda text: None, scripted or Scripted())


@pytest.fixture(scope="module")
def model():
    return residual_net()


def test_a_batch_that_fits_is_left_as_it_is(model):
    plan = planner(4096 * MIB, model, keep=frozenset({"kernels"})).plan()
    assert (plan.micro_batch, plan.recipe.remat, plan.changes) == (64, "none", ())
    assert "whole batch of 64 fits" in plan.why


@pytest.mark.backends("torch")
def test_fused_kernels_are_taken_where_they_serve_the_model_and_said_to_change_rounding(model):
    plan = planner(4096 * MIB, model).plan()
    assert plan.recipe.kernels == "fused"
    assert [(change.knob, change.effect) for change in plan.changes] == [("kernels", "rounding")]


def test_what_is_chosen_was_estimated_and_fits_with_the_reserve(model):
    for budget_mib in (20, 40, 80, 160, 320):
        scripted = Scripted()
        plan = planner(budget_mib * MIB, model, scripted=scripted).plan()
        assert plan.estimate.required_bytes + plan.reserve_bytes <= budget_mib * MIB
        chosen = [one for one in plan.frontier if one.recipe == plan.recipe]
        assert chosen, "the chosen one is on the frontier"
        assert chosen[0].confirmed
        assert len(scripted.asked) <= 8


def test_more_memory_is_never_slower(model):
    speeds = [planner(mib * MIB, model).plan().speed.samples_per_second for mib in (16, 24, 36, 54, 80, 120, 240, 900)]
    assert all(later >= 0.97 * earlier for earlier, later in pairwise(speeds)), speeds
    assert speeds[-1] > speeds[0]


def test_recomputing_keeps_enough_samples_together_for_batch_statistics(model):
    plain = planner(4096 * MIB, model).plan().estimate.required_bytes
    budget = plain // 5
    plan = planner(budget, model).plan()
    assert plan.micro_batch >= 16
    assert plan.recipe.remat != "none"
    hasty = planner(budget, model, prefer="speed").plan()
    assert hasty.speed.samples_per_second >= plan.speed.samples_per_second


def test_what_is_kept_stays_as_the_model_has_it(model):
    budget = planner(4096 * MIB, model).plan().estimate.required_bytes * 3 // 4
    assert planner(budget, model, keep=frozenset({"remat"})).plan().recipe.remat == "none"
    assert planner(budget, model, keep=frozenset({"micro_batch"})).plan().micro_batch == 64
    with pytest.raises(NothingFitsError):
        planner(budget, model, keep=frozenset({"remat", "micro_batch"})).plan()


def test_a_micro_batch_that_is_settled_stays_and_the_rest_is_planned(model):
    plain = planner(4096 * MIB, model, micro_batch=30).plan()
    assert (plain.micro_batch, plain.recipe.remat) == (22, "none"), "64 in the fewest even parts of at most 30"
    tight = planner(plain.estimate.required_bytes * 3 // 4, model, micro_batch=30).plan()
    assert tight.micro_batch == 22
    assert tight.recipe.remat != "none"


def test_precision_is_the_models_own_unless_it_is_freed():
    # Large pictures: on PyTorch what is small waits for launches, of which half precision has more.
    budget_bytes, model = 64 * 60 * MIB, residual_net(image_size=512)
    assert planner(budget_bytes, model).plan().recipe.precision == "float32"
    freed = planner(budget_bytes, model, precision="auto").plan()
    assert freed.recipe.precision == "mixed_bfloat16"
    assert [change.effect for change in freed.changes if change.knob == "precision"] == ["rounding"]
    on_t4 = planner(budget_bytes, model, precision="auto", gpu="T4").plan()
    assert on_t4.recipe.precision == "mixed_float16"
    kept = planner(budget_bytes, model, precision="auto", keep=frozenset({"precision"})).plan()
    assert kept.recipe.precision == "float32"
    asked = planner(budget_bytes, model, precision="mixed_float16").plan()
    assert asked.recipe.precision == "mixed_float16"


def test_nothing_fits_and_the_error_names_the_smallest_budget_and_a_card(model):
    with pytest.raises(NothingFitsError) as refused:
        planner(900 * KIB, model).plan()
    smallest_bytes = refused.value.smallest_bytes
    assert "smallest card that does is" in refused.value.hint
    smallest = planner(smallest_bytes, model).plan()
    assert (smallest.micro_batch, smallest.recipe) == (1, refused.value.recipe)
    with pytest.raises(NothingFitsError):
        planner(int(0.9 * smallest_bytes), model).plan()


def test_the_task_is_changed_only_where_it_is_allowed_and_nothing_else_fits():
    dense = dense_net()
    weights_bytes = sum(4 * int(variable.value.numel()) for variable in dense.trainable_variables)
    scripted = Scripted(factor=1.0, recomputed_factor=1.0)
    budget = int(3.7 * weights_bytes) + 2 * MIB  # weights, gradients, Lion's slot; Adam's two are too many
    with pytest.raises(NothingFitsError):
        planner(budget, dense, scripted=scripted, batch_size=32).plan()
    lean = planner(budget, dense, scripted=scripted, batch_size=32, allow=frozenset({"optimizer"})).plan()
    assert lean.recipe.optimizer in ("adafactor", "lion", "sgd")
    assert "the task itself" in {change.effect for change in lean.changes}
    roomy = planner(100 * MIB, dense, batch_size=32, allow=frozenset({"optimizer"})).plan()
    assert roomy.recipe.optimizer is None


def test_pictures_are_made_smaller_only_as_far_as_memory_wants_it(model):
    sized = {"allow": frozenset({"image_size"}), "rebuild": residual_net, "keep": frozenset({"micro_batch"})}
    both = sized | {"allow": frozenset({"image_size", "frozen_layers"})}
    with pytest.raises(NothingFitsError) as refused:
        planner(10 * MIB, model, keep=frozenset({"micro_batch"})).plan()
    smallest_bytes = refused.value.smallest_bytes
    smaller = planner(int(0.9 * smallest_bytes), model, **sized).plan()
    assert smaller.recipe.image_size == 32
    assert describe_difference(smaller.model_digest, model_digest(residual_net(32))) is None
    assert planner(int(1.05 * smallest_bytes), model, **sized).plan().recipe.image_size is None
    assert planner(int(0.9 * smallest_bytes), model, **both).plan().recipe == smaller.recipe, "before layers are frozen"
    with pytest.raises(NothingFitsError, match="Images of 32 x 32 were allowed, but fail: The net cannot be built"):
        planner(int(0.9 * smallest_bytes), model, **sized | {"rebuild": too_small}).plan()
    with pytest.raises(InputError, match="one image size"):
        PlanRequest(model=model, batch_size=8, allow=frozenset({"image_size"}))


def test_a_size_at_which_still_too_few_samples_fit_costs_one_estimate():
    large = residual_net(192)
    sized = {"allow": frozenset({"image_size"}), "rebuild": residual_net}
    tightest = planner(4096 * MIB, large, keep=frozenset({"micro_batch"})).plan().frontier[-1]
    sixteen_bytes = tightest.required_bytes // 4
    scripted = Scripted()
    plan = planner(int(0.4 * sixteen_bytes), large, scripted=scripted, **sized).plan()
    asked = [candidate.variant.image_size for candidate in scripted.asked]
    assert plan.micro_batch >= 16
    assert plan.recipe.image_size == 96
    assert [asked.count(size) for size in (160, 128)] == [1, 1]


def test_layers_are_frozen_only_where_that_is_allowed_and_no_more_of_them_than_it_takes():
    layers = [keras.layers.Dense(600, activation="relu", name=f"hidden_{number}") for number in range(7)]
    deep = keras.Sequential([keras.Input((600,)), *layers, keras.layers.Dense(5)])
    scripted = Scripted(factor=1.0, recomputed_factor=1.0)
    trained = len(deep.trainable_variables)

    def frozen_at(part, allow=frozenset({"frozen_layers"})):
        return planner(int(part * whole), deep, scripted=scripted, batch_size=8, allow=allow).plan()

    with pytest.raises(NothingFitsError) as refused:
        planner(MIB, deep, scripted=scripted, batch_size=8).plan()
    whole = refused.value.smallest_bytes
    assert frozen_at(1.1).recipe.frozen_layers is None
    numbers = [frozen_at(part).recipe.frozen_layers for part in (0.9, 0.7, 0.6, 0.3)]
    assert numbers == [2, 2, 4, 7], "a quarter, a quarter, half, all but the last"
    with pytest.raises(NothingFitsError):
        frozen_at(0.9, allow=frozenset())
    plan = frozen_at(0.6)
    assert "Nothing fits without changing the task; it is changed as `allow` permits." in plan.why
    assert [change.effect for change in plan.changes if change.knob == "frozen_layers"] == ["the task itself"]
    assert len(deep.trainable_variables) == trained, "planning leaves the model as it was"
    deep.compile("adam", "mse")
    with pytest.raises(InputError, match="first 4 of 8 layers with weights untrained, up to 'hidden_3'") as refused:
        recipes_of(plan, deep)
    assert "fitroom.freeze(model, 4)" in refused.value.hint
    fitroom.freeze(deep, 4)
    deep.compile("adam", "mse")
    assert recipes_of(plan, deep)[0].micro_batch == plan.recipe.micro_batch


def test_a_batch_that_cannot_be_cut_is_planned_whole_and_why_is_said(model):
    class Own(keras.Model):
        def train_step(self, data):
            return super().train_step(data)

    own = Own(model.inputs, model.outputs)
    own.compile("adam", "sparse_categorical_crossentropy")
    whole_bytes = planner(4096 * MIB, own).plan().estimate.required_bytes
    plan = planner(int(0.8 * whole_bytes), own).plan()
    assert plan.micro_batch == 64
    assert plan.recipe.remat != "none"
    assert {one.micro_batch for one in plan.frontier} == {64}
    assert all(recipe.micro_batch is None for recipe in plan.fallbacks)
    assert "The batch cannot be split into micro-batches: the model brings its own `train_step`." in plan.notes
    assert any(note.startswith("In its place a plan may take remat") for note in plan.notes)
    assert any("--precision auto" in note for note in plan.notes)
    with pytest.raises(fitroom.NothingFitsError, match="cannot be split into micro-batches: the model brings its own"):
        planner(int(0.05 * whole_bytes), own).plan()


def test_a_loss_without_a_reduction_is_planned_whole_before_keras_has_seen_a_batch(model):
    model = keras.Model(model.inputs, model.outputs)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(reduction="none"))
    plan = planner(4096 * MIB, model).plan()
    assert {one.micro_batch for one in plan.frontier} == {64}
    assert "has no reduction" in " ".join(plan.notes)


def test_a_loss_that_keras_does_not_know_is_told(model):
    model = keras.Model(model.inputs, model.outputs)
    model.compile("adam", "msee")
    with pytest.raises(fitroom.ModelError, match="msee"):
        planner(40 * MIB, model)


def test_a_loss_of_kerass_that_may_couple_samples_is_noted_where_the_batch_is_cut(model):
    model = keras.Model(model.inputs, model.outputs)
    for loss, is_noted in (("dice", True), ("sparse_categorical_crossentropy", False)):
        model.compile("adam", loss)
        assert (
            f"Whether the loss '{loss}' can be computed in micro-batches"
            in " ".join(planner(40 * MIB, model).plan().notes)
        ) == is_noted


def test_a_loss_of_the_users_own_is_noted_where_the_batch_is_cut(model):
    def couples(y_true, y_pred):
        return keras.ops.mean(keras.ops.matmul(y_pred, keras.ops.transpose(y_pred)), axis=-1)

    model = keras.Model(model.inputs, model.outputs)
    model.compile("adam", couples)
    noted = "Whether the loss 'couples' can be computed in micro-batches is tried when training begins"
    assert noted in " ".join(planner(40 * MIB, model).plan().notes)
    assert noted not in " ".join(planner(4096 * MIB, model).plan().notes)


def test_a_precision_that_the_model_cannot_be_had_in_is_left_out_and_noted(model):
    class Doubled(keras.layers.Layer):
        def __init__(self, by):
            super().__init__()
            self.by = by

        def call(self, x):
            return self.by * x

    without_config = keras.Model(model.inputs, Doubled(keras.ops.ones(()))(model.outputs[0]))
    plan = planner(40 * MIB, without_config, precision="auto").plan()
    assert plan.estimate.precision == "float32"
    assert "could not be rebuilt in mixed_bfloat16" in " ".join(plan.notes)


def test_a_model_in_a_precision_of_its_own_is_planned_in_it():
    keras.config.set_dtype_policy("float64")
    try:
        own = small_net()
    finally:
        keras.config.set_dtype_policy("float32")
    plan = fitroom.plan(own, 16, gpu="T4")
    assert (plan.recipe.precision, plan.estimate.precision) == (None, "float64")
    assert fitroom.Plan.from_dict(plan.to_dict()).recipe.precision is None


def test_the_largest_batch_is_none_where_only_recomputing_has_room():
    x = inputs = keras.Input((128, 128, 3))
    for _ in range(12):
        x = keras.layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    deep = keras.Model(inputs, keras.layers.Dense(5)(keras.layers.GlobalAveragePooling2D()(x)))
    one_bytes = fitroom.estimate(deep, 1, gpu="L4", recipe=fitroom.Recipe(remat="none")).required_bytes
    with pytest.raises(InputError, match=r"Not even one sample fits into .* with nothing recomputed"):
        fitroom.plan(deep, "max", budget=int(0.9 * one_bytes), gpu="L4", keep="remat")


def test_the_fallbacks_take_less_and_less(model):
    plan = planner(80 * MIB, model).plan()
    assert plan.fallbacks
    assert plan.fallbacks[0].remat != "none"
    sizes = [recipe.micro_batch or plan.batch_size for recipe in plan.fallbacks]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == plan.micro_batch


def test_layers_within_layers_that_were_never_called_are_built_for_the_first_plan():
    class Block(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = keras.layers.Dense(8)

        def call(self, x):
            return self.inner(x)

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.block = Block()

        def call(self, x):
            return self.block(x)

    model = Own()
    model.build((None, 4))
    model.compile("adam", "mse")
    found = fitroom.estimate(model, 16, gpu="T4")
    assert found.by_kind["optimizer"] >= 2 * 4 * (4 * 8 + 8), "slots for all of its weights"
    assert all(variable._value is not None for variable in model.variables)


def test_a_model_without_a_graph_is_planned_by_its_estimates_alone():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(8)

        def call(self, x):
            return self.dense(x)

    own = Own()
    own(keras.ops.zeros((1, 16)))
    plan = planner(64 * MIB, own, scripted=Scripted(factor=2.0, recomputed_factor=2.0)).plan()
    assert plan.speed is None
    assert plan.estimate.required_bytes <= 64 * MIB
    assert plan.micro_batch < 64


def test_every_card_gets_an_answer_without_an_estimate_each():
    scripted_cards = [find_card(name) for name in ("RTX 3060", "T4", "H200")]
    question = PlanRequest(model=small_net(), batch_size=64, precision="auto", keep=frozenset({"kernels"}))
    found = plan_for_cards(question, scripted_cards)
    assert [one.card.name for one in found] == ["RTX 3060", "T4", "H200"]
    assert all(one.option is not None for one in found)
    assert found[-1].option.speed.samples_per_second > found[0].option.speed.samples_per_second
    assert not any(one.option.confirmed for one in found if one.card.name == "H200")


def test_the_largest_batch_is_planned_whole():
    plan = fitroom.plan(plain_net(), "max", budget="400MiB", gpu="L4")
    assert plan.micro_batch == plan.batch_size
    assert f"{plan.batch_size} with as much recomputed as saves memory" in plan.notes[0]


def test_a_model_that_was_built_by_calling_it_has_no_fixed_batch():
    class Called(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(8)

        def call(self, x):
            return self.dense(x)

    called = Called()
    called(keras.ops.zeros((1, 16)))
    assert fitroom.plan(called, 32, budget="64MiB", gpu="L4").micro_batch == 32


def test_the_public_function_refuses_what_cannot_be(model):
    for wrong in ({"batch_size": 0}, {"batch_size": "many"}, {"prefer": "haste"}, {"precision": "float8"}):
        with pytest.raises(InputError):
            fitroom.plan(model, **{"budget": "1GiB", "gpu": "L4"} | wrong)


def test_the_largest_batch_is_estimated_and_the_next_does_not_fit():
    model = plain_net()
    found = fitroom.max_batch(model, budget="400MiB", gpu="L4")
    usable = 0.97 * 400 * MIB
    assert fitroom.estimate(model, found.plain, gpu="L4").required_bytes <= usable
    assert fitroom.estimate(model, int(1.1 * found.plain) + 1, gpu="L4").required_bytes > usable
    assert found.with_remat > found.plain
    with pytest.raises(NothingFitsError):
        fitroom.max_batch(model, budget="1MiB", gpu="L4")


def test_a_probe_times_the_best_few_and_the_fastest_of_them_is_taken():
    model = residual_net(image_size=32)
    weights = [keras.ops.convert_to_numpy(weight) for weight in model.weights]
    plan = planner(15 * MIB, model, batch_size=32).plan(probe=True)
    assert plan.speed.method == "measured"
    timed = [one for one in plan.frontier if one.speed.method == "measured"]
    # A faster one with too few samples for batch statistics is not taken.
    rivals = [one.speed.seconds_per_step for one in timed if one.micro_batch >= min(plan.micro_batch, 16)]
    assert plan.speed.seconds_per_step <= 1.02 * min(rivals)
    assert all(
        (before == keras.ops.convert_to_numpy(weight)).all()
        for before, weight in zip(weights, model.weights, strict=True)
    )


@pytest.mark.quick_on("torch")
def test_a_plan_on_another_backend_does_not_import_tensorflow(monkeypatch):
    import keras.src.utils.module_utils as modules

    if sys.modules.get("tensorflow"):
        pytest.skip("Keras may ask: it is imported")
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    asked = []

    class Asked:
        def find_spec(self, name, path=None, target=None):
            asked.append(name)

    monkeypatch.setattr(modules.tensorflow, "_available", None)
    monkeypatch.setattr(sys, "meta_path", [Asked(), *sys.meta_path])
    with skip_tensorflow_types():
        keras.layers.Dense(3, activation="relu").get_config()
    assert "tensorflow" not in asked
    assert modules.tensorflow._available is None


def test_a_recipe_tried_on_a_card_takes_what_a_plan_for_that_card_says():
    """Several cards that train together use one recipe; what it takes on another card is estimated anew."""
    model, card = plain_net(), find_card("RTX 3060")
    budget = Budget(bytes=34 * MIB, source="given")
    planned = fitroom.plan(model, 8, gpu=card, budget=budget)
    assert planned.recipe.recomputes or planned.micro_batch < 8
    tried = try_recipe(model, 8, planned.recipe, card, planned.budget, backend="torch")
    assert (tried.micro_batch, tried.required_bytes) == (planned.micro_batch, planned.estimate.required_bytes)
    assert tried.fits
    assert tried.speed.seconds_per_step == pytest.approx(planned.speed.seconds_per_step)
    assert not try_recipe(model, 64, fitroom.Recipe(), card, planned.budget, backend="torch").fits


def test_a_first_answer_comes_after_one_estimate_of_a_small_micro_batch(model):
    said, scripted = [], Scripted()
    room = Target(budget=Budget(bytes=80 * MIB, source="given"), card=find_card("L4"))
    plan = Planner(PlanRequest(model=model, batch_size=96), room, said.append, scripted).plan()
    assert len(scripted.asked) >= 2
    [first] = [text for text in said if text.startswith("first answer, interpolated: micro-batch")]
    assert f"of {80}.0 MiB" in first
    assert plan.estimate.required_bytes <= 80 * MIB
