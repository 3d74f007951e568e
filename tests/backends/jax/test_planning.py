"""A plan by the real compiler: what it promises is what `estimate` says, and it loads again."""

import keras
import pytest

import fitroom
from fitroom.backends.xla.process import CompilerProcess
from fitroom.memory.step import NO_LIMIT_BYTES
from fitroom.planning.largest_batch import LargestBatch
from fitroom.planning.result import Plan
from fitroom.planning.target import choose_target
from fitroom.planning.variant import Variant
from fitroom.recipe import Recipe
from planning_models import MIB, dense_net, residual_net

pytestmark = pytest.mark.usefixtures("kernels_are_not_tried")


def test_a_plan_is_what_the_estimate_says(tmp_path):
    model = residual_net()
    plan = fitroom.plan(model, 32, budget="48MiB", gpu="L4")
    assert plan.estimate.required_bytes <= 0.97 * 48 * MIB
    assert plan.recipe.micro_batch is not None or plan.recipe.remat != "none"
    again = fitroom.estimate(model, 32, recipe=plan.recipe, gpu="L4", limit="48MiB")
    assert again.required_bytes == plan.estimate.required_bytes, "XLA has nothing to recompute to come under the limit"
    assert not any("by itself" in note for note in again.notes)
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").to_dict() == plan.to_dict()
    assert "the whole batch of 32" in str(plan).lower()


def test_an_optimizer_that_insists_on_values_is_estimated_too():
    model = dense_net()
    weights_bytes = sum(4 * variable.value.size for variable in model.trainable_variables)
    lean = fitroom.estimate(model, 8, optimizer="adafactor", gpu="L4")
    assert lean.by_kind["weights"] == pytest.approx(weights_bytes, rel=0.01)
    assert lean.by_kind["optimizer"] < 1.5 * weights_bytes, "Adam keeps two numbers a weight"


def test_leaner_optimizers_are_planned_where_they_are_allowed():
    model = dense_net()
    plain = fitroom.estimate(model, 8, gpu="L4").required_bytes
    plan = fitroom.plan(model, 8, budget=int(0.85 * plain), gpu="L4", keep="micro-batch,remat", allow="optimizer")
    assert plan.recipe.optimizer in ("adafactor", "lion", "sgd")


def test_the_largest_batch_fits_as_it_is_and_not_by_what_xla_would_recompute_under_a_limit():
    x = inputs = keras.Input((32, 32, 3))
    x = keras.layers.BatchNormalization()(keras.layers.Conv2D(8, 3, padding="same", activation="relu")(x))
    x = keras.layers.Conv2D(16, 3, padding="same", activation="relu")(keras.layers.MaxPooling2D()(x))
    model = keras.Model(inputs, keras.layers.Dense(3)(keras.layers.GlobalAveragePooling2D()(x)))
    room = choose_target("64MiB", "T4", "jax")
    search = LargestBatch(model, room, Variant(precision="float32"), optimizer=None, loss=None, say=lambda _: None)
    found = fitroom.estimate(model, search.plain(), recipe=Recipe(remat="none"), gpu="T4", limit=NO_LIMIT_BYTES)
    assert 0.9 * room.usable_bytes < found.required_bytes <= room.usable_bytes


def test_estimates_that_are_begun_ahead_change_nothing_of_the_plan(monkeypatch):
    """Nor do they leave a compiler at work."""
    model, plans, begun, ended = dense_net(), [], [], []
    begin, end = CompilerProcess.__init__, CompilerProcess.end
    monkeypatch.setattr(CompilerProcess, "__init__", lambda self, *a, **k: begun.append(self) or begin(self, *a, **k))
    monkeypatch.setattr(CompilerProcess, "end", lambda self: (ended.append(self), end(self))[1])
    monkeypatch.setenv("FITROOM_NO_CACHE", "1")
    for cores in (2, 1):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        plan = fitroom.plan(model, 64, budget="24MiB", gpu="L4", keep="remat")
        values = plan.to_dict()
        values["estimate"].pop("seconds")
        plans.append(values)
    assert plans[0] == plans[1]
    assert len(begun) >= 2
    assert set(begun) == set(ended)
