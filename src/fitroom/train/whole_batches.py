"""What is left where a batch cannot be split into micro-batches and memory runs out."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fitroom.backends.choose import current_backend
from fitroom.backends.fused import has_fused
from fitroom.explaining.advice import JIT, KERNELS, PRECISION, REMAT, Setting
from fitroom.keras_model.jit_choice import jit_choice
from fitroom.keras_model.layers import can_be_jitted, precision_of
from fitroom.keras_model.recompute import has_blocks
from fitroom.recipe import Recipe


def remat_fallback(model: Any, recipe: Recipe) -> tuple[Recipe, ...]:
    """Return the recipe that recomputes blocks, which changes nothing about the result; none where that was decided."""
    return (replace(recipe, remat="blocks"),) if recipe.remat is None and has_blocks(model) else ()


def list_offers(model: Any, recipe: Recipe) -> tuple[Setting, ...]:
    """Return the settings that take less memory with whole batches and are not in force, the mildest first."""
    return tuple(_list_offers(model, recipe))


def _list_offers(model: Any, recipe: Recipe) -> Iterator[Setting]:
    backend = current_backend()
    if not recipe.recomputes and has_blocks(model):
        yield REMAT
    is_jitted = bool(model.jit_compile if recipe.jit is None else recipe.jit)
    if backend.name == "tensorflow" and not is_jitted and jit_choice(model) is not False and can_be_jitted(model):
        yield JIT
    if recipe.kernels != "fused" and has_fused(backend, model, jit=is_jitted):
        yield KERNELS
    if (recipe.precision or precision_of(model)) == "float32":
        yield PRECISION
