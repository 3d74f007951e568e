"""A plan applied to one training: whether it was made for this model and data, and the recipes that it gives."""

from pathlib import Path
from typing import Any

from fitroom.backends.choose import current_backend
from fitroom.batch import Batch, leaves
from fitroom.errors import InputError, ModelError
from fitroom.input_sizes import InputShape
from fitroom.keras_model.freezing import layers_with_weights, num_frozen
from fitroom.keras_model.layers import precision_of
from fitroom.planning.identity import describe_difference, model_digest, rename_segments
from fitroom.planning.result import Plan
from fitroom.recipe import Recipe, Remat
from fitroom.remat.graph import functional_of

KNOBS_OF_FIT = ("micro_batch", "precision", "jit", "remat", "kernels", "attention_dropout")
"""The knobs of a recipe that a training sets by itself."""

_LEFT_TO_OTHERS = ("optimizer", "image_size", "frozen_layers", "input_dtype")
"""Knobs that the user sets on the model, which is checked here; `input_dtype` follows from the data."""


def load_plan(plan: Any) -> Plan:
    """The plan that was given, or that of the file that was named."""
    if isinstance(plan, str | Path):
        return Plan.load(plan)
    if not isinstance(plan, Plan):
        raise InputError(
            f"`plan` must be what `fitroom.plan` gave, or the path of a saved plan. Received: {plan!r}.",
            hint='plan = fitroom.plan(model, batch_size=256, budget="16GiB")',
        )
    return plan


def recipes_of(plan: Plan, model: Any) -> tuple[Recipe, ...]:
    """The recipes for a built model: the first to train with, the others for when memory runs out.

    Raises InputError where the plan was made for another model or backend.
    """
    _check_backend(plan)
    _check_frozen(plan, model)
    own = model_digest(model)
    _check_model(plan, model, own)
    _check_knobs(plan, model)
    recipes = tuple(_adapt_recipe(recipe, plan, model, own) for recipe in (plan.recipe, *plan.fallbacks))
    _check_segments(recipes, model)
    return recipes


def check_batches(plan: Plan, first: Batch, full_size: int) -> None:
    """Raise InputError for a plan that was made for another batch size or image size.

    `first` is a batch of the data, and `full_size` the number of samples in a full batch.
    """
    if full_size != plan.batch_size:
        raise InputError(
            f"The plan is for batches of {plan.batch_size}, and the data are in batches of {full_size}.",
            hint=f"batch_size={plan.batch_size}, or a plan for these: fitroom.plan(model, batch_size={full_size}, ...)",
        )
    size = plan.recipe.image_size
    if size is not None and not any(tuple(array.shape[1:3]) == (size, size) for array in leaves(first.x)):
        shapes = ", ".join(str(tuple(array.shape[1:])) for array in leaves(first.x))
        raise InputError(
            f"The plan is for images of {size} x {size}, and the data are of shape {shapes}.",
            hint=f"build the model for {size} x {size}, give it such images, and make a plan for that model",
        )


def sample_shapes(batch: Batch) -> InputShape:
    """The shapes of the inputs of a batch, as `fitroom.plan` takes them."""
    if isinstance(batch.x, dict):
        return {name: tuple(array.shape[1:]) for name, array in batch.x.items() if hasattr(array, "shape")}
    return [tuple(array.shape[1:]) for array in leaves(batch.x)]


def _check_backend(plan: Plan) -> None:
    name = current_backend().name
    if plan.backend != name:
        raise InputError(
            f"The plan was made for the {plan.backend} backend, and this is {name}.",
            hint=f"set KERAS_BACKEND={plan.backend} before Keras is imported, or make a plan here",
        )


def _check_frozen(plan: Plan, model: Any) -> None:
    wanted = plan.recipe.frozen_layers
    if not wanted or functional_of(model) is None:
        return
    layers, found = layers_with_weights(model), num_frozen(model)
    if found < wanted < len(layers):
        raise InputError(
            f"The plan leaves the first {wanted} of {len(layers)} layers with weights untrained, up to "
            f"{layers[wanted - 1].name!r}; of the model {found} are.",
            hint=f"fitroom.freeze(model, {wanted}) and model.compile(...) before `fit`",
        )


def _check_model(plan: Plan, model: Any, own: str) -> None:
    differs = describe_difference(plan.model_digest, own)
    if differs is not None:
        raise ModelError(
            f"The plan was made for another model. Expected: {plan.model!r}. Received: {model.name!r} ({differs}).",
            hint=f"make one for this model: fitroom.plan(model, batch_size={plan.batch_size}, ...)",
        )


def _check_knobs(plan: Plan, model: Any) -> None:
    others = [name for name in plan.recipe.to_dict() if name not in (*KNOBS_OF_FIT, *_LEFT_TO_OTHERS)]
    if others:
        raise InputError(
            f"The plan sets {', '.join(others)}, which `fit` cannot.",
            hint="build and compile the model so, and make a plan for it",
        )
    wanted = plan.recipe.optimizer
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    if wanted is not None and type(optimizer).__name__.lower() != wanted.lower():
        raise InputError(
            f"The plan is for the optimizer {wanted!r}, and the model is compiled with {type(optimizer).__name__}.",
            hint=f"model.compile(optimizer={wanted!r}, ...) before `fit`; mind that its learning rate is another",
        )


def _adapt_recipe(recipe: Recipe, plan: Plan, model: Any, own: str) -> Recipe:
    """The knobs of a planned recipe that differ from what the model and its batches are already."""
    remat = recipe.remat if recipe.recomputes else None
    return Recipe(
        precision=recipe.precision if recipe.precision != precision_of(model) else None,
        jit=recipe.jit,
        kernels=recipe.kernels,
        remat=rename_segments(remat, plan.model_digest, own) if isinstance(remat, Remat) else remat,
        micro_batch=recipe.micro_batch if recipe.is_split(plan.batch_size) else None,
    )


def _check_segments(recipes: tuple[Recipe, ...], model: Any) -> None:
    """Raise now for segments that the model lacks, rather than when memory has run out."""
    named = [recipe.remat for recipe in recipes if isinstance(recipe.remat, Remat)]
    if named:
        from fitroom.remat.chooser import find_segments
        from fitroom.remat.graph import layer_graph

        graph = layer_graph(model)
        for remat in named:
            find_segments(graph, remat)
