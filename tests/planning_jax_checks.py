"""A plan by the real compiler: what it promises is what `estimate` says, and it loads again."""

import pytest

import fitroom
from fitroom.planning.result import Plan
from planning_checks import MIB, dense_net, residual_net


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
