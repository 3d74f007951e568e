"""`fitroom.estimate`: predicts how much memory a training step takes, without running it."""

import operator
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fitroom.activity import activity
from fitroom.backends.contract import TracesAhead
from fitroom.backends.default_share import share_note
from fitroom.backends.fused import check_attention_dropout, check_fused
from fitroom.backends.quiet import quiet_tensorflow_imports
from fitroom.cards.catalogue import Card, find_card
from fitroom.cards.overhead import context_bytes
from fitroom.distribution.overhead import NCCL
from fitroom.errors import InputError, UnknownNameError
from fitroom.estimating.corrections import with_corrections
from fitroom.estimating.devices import SpreadRequest, compiles_for_all
from fitroom.estimating.smallest_limit import trace_under_smallest_limit
from fitroom.estimating.sureness import with_seen_error
from fitroom.input_sizes import InputShape, known_sizes
from fitroom.keras_model.private import skip_tensorflow_types
from fitroom.memory.estimate import Estimate
from fitroom.memory.step import NO_LIMIT_BYTES, PendingStep, StepRequest
from fitroom.recipe import Recipe, Remat, recipe_of
from fitroom.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    import keras

DEFAULT_GPU = "T4"
"""The card for an estimate where none is named and none is in this machine: the one that Colab and Kaggle offer."""

SMALLEST_LIMIT = "smallest"
"""In place of a limit: the smallest limit under which the step runs."""


def estimate(
    model: "keras.Model",
    batch_size: int,
    *,
    recipe: Recipe | None = None,
    optimizer: Any = None,
    loss: Any = None,
    gpu: str | Card | None = None,
    limit: str | int | None = None,
    input_shape: InputShape | None = None,
    training: bool = True,
    measure: bool = False,
    devices: int = 1,
    shard_weights: bool = False,
) -> Estimate:
    """Estimate what one optimizer step of `model.fit` takes on a card, without running it.

    The model is not changed. A compiled model brings its own optimizer, loss and metrics; a model that is not compiled
    is estimated with Adam and a loss that suits its last layer.

    Args:
        model: a built `keras.Model`.
        batch_size: samples per optimizer step.
        recipe: how the step is carried out; None for the plain `model.fit` step.
        optimizer: a Keras optimizer or its name, in place of the model's.
        loss: a Keras loss or its name, in place of the model's.
        gpu: the name of the card; None for the card in this machine, or else a T4.
        limit: the allocator's limit, as "12GiB" or bytes; None for what the framework takes of the card by default;
            "smallest" for the smallest limit under which it trains (on XLA several compiles, because it recomputes to
            stay below a limit).
        input_shape: the shape of one sample, such as (512, 512, 3), for a model that leaves dimensions open; of
            several inputs one each, in a list or by name. Where batches differ in shape, give the largest.
        training: False for the step of `model.predict`.
        measure: run the step on the card in this machine instead of predicting it.
        devices: how many cards like this one share the batch; all sizes are those of the one with the largest share,
            with what distribution adds.
        shard_weights: with several devices on JAX, as `fitroom.devices(..., shard_weights=True)` trains.

    Example:
        >>> e = fitroom.estimate(model, batch_size=64, gpu="RTX 3060")     # doctest: +SKIP
        >>> e.peak_bytes, e.fits, e.by_kind["activations"]                 # doctest: +SKIP
    """
    return begin_estimate(
        model,
        batch_size,
        recipe=recipe,
        optimizer=optimizer,
        loss=loss,
        gpu=gpu,
        limit=limit,
        input_shape=input_shape,
        training=training,
        measure=measure,
        devices=devices,
        shard_weights=shard_weights,
    ).result()


@dataclass(frozen=True, kw_only=True)
class PendingEstimate:
    """An estimate whose step is traced, and which a compiler in another process may still be at work on."""

    result: Callable[[], Estimate]
    """Waits for the compiler; called once."""

    cancel: Callable[[], None]
    """Ends the compiler, where nobody needs the result any more."""


@quiet_tensorflow_imports()
@skip_tensorflow_types()
def begin_estimate(
    model: "keras.Model",
    batch_size: int,
    *,
    recipe: Recipe | None = None,
    optimizer: Any = None,
    loss: Any = None,
    gpu: str | Card | None = None,
    limit: str | int | None = None,
    input_shape: InputShape | None = None,
    training: bool = True,
    measure: bool = False,
    devices: int = 1,
    shard_weights: bool = False,
) -> PendingEstimate:
    """Trace the step that `estimate` is asked for. The model may be used for the next before the result is there.

    The arguments are those of `estimate`.
    """
    from fitroom.backends.choose import current_backend
    from fitroom.keras_model.input_batch import symbolic_calls
    from fitroom.keras_model.model_kind import model_kind

    started = time.perf_counter()
    batch_size = check_batch_size(batch_size)
    card, card_notes = choose_card(gpu)
    recipe = recipe_of(recipe)
    backend = current_backend()
    spread = SpreadRequest(
        devices=devices,
        shard_weights=shard_weights,
        backend=backend.name,
        compiles=compiles_for_all(backend.name, recipe),
    )
    spread.check(batch_size, measure=measure, training=training)
    request = StepRequest(
        batch_size=spread.traced_batch(batch_size, recipe),
        devices=spread.traced_devices(batch_size, recipe),
        shard_weights=shard_weights,
        card=card,
        recipe=recipe,
        limit_bytes=None if limit in (None, SMALLEST_LIMIT) else parse_bytes(limit),
        optimizer=optimizer,
        loss=loss,
        training=training,
        measure=measure,
    )
    trace = partial(trace_under_smallest_limit, backend) if limit == SMALLEST_LIMIT else backend.trace
    if recipe.kernels == "fused":
        check_fused(backend, model, jit=recipe.jit)
    if recipe.attention_dropout == "fused":
        check_attention_dropout(backend, model)
    with symbolic_calls(), known_sizes(input_shape, image_size=recipe.image_size), _freeze(model, recipe):
        if training and isinstance(recipe.remat, Remat) and recipe.remat.budget is not None:
            from fitroom.estimating.remat_budget import trace_within_budget

            traced, recipe = trace_within_budget(trace, model, request)
            pending = PendingStep(result=lambda: traced, cancel=lambda: None)
        elif limit != SMALLEST_LIMIT and isinstance(backend, TracesAhead):
            pending = backend.begin_trace(model, request)
        else:
            with activity("tracing the step"):
                traced = trace(model, request)
            pending = PendingStep(result=lambda: traced, cancel=lambda: None)
    # All that concerns the model is found now: it may change before the result is asked for.
    added = spread.added_bytes(model, batch_size, recipe) if training else {}
    remat_notes = _describe_remat(model, recipe, training=training)
    movable = _movable_augmentation(model, recipe) if training else ()
    name, digest, kind = model.name, _digest_layers(model, recipe), model_kind(model)

    def result() -> Estimate:
        traced = pending.result()
        augmentation = _describe_movable(movable) if traced.method == "traced" else ()
        required_bytes = traced.required_bytes + sum(size for name, size in added.items() if name != NCCL)
        found = Estimate(
            peak_bytes=traced.timeline.peak_bytes,
            required_bytes=required_bytes,
            device_bytes=required_bytes + context_bytes(card, backend.name) + added.get(NCCL, 0),
            timeline=traced.timeline,
            method=traced.method,
            typical_error=traced.typical_error,
            model=name,
            backend=backend.name,
            gpu=card.name,
            limit_bytes=traced.limit_bytes,
            batch_size=batch_size,
            precision=traced.precision,
            recipe=recipe,
            seconds=time.perf_counter() - started,
            training=training,
            versions=traced.versions,
            notes=(
                *card_notes,
                *_describe_limit(request, limit, backend.name),
                *remat_notes,
                *spread.notes(batch_size, added),
                *traced.notes,
                *augmentation,
            ),
            devices=devices,
            distribution_bytes=added,
            layers_digest=digest,
            uncorrected_bytes=traced.predicted_bytes,
            predicted_with=traced.predicted_with,
        )
        return with_corrections(with_seen_error(found, kind))

    return PendingEstimate(result=result, cancel=pending.cancel)


def _digest_layers(model: Any, recipe: Recipe) -> str:
    """A digest of the model as the recipe trains it."""
    from fitroom.keras_model.fingerprint import layers_digest  # it imports Keras

    with _freeze(model, recipe):
        return layers_digest(model)


def _freeze(model: Any, recipe: Recipe) -> AbstractContextManager[None]:
    if recipe.frozen_layers is None:
        return nullcontext()
    from fitroom.keras_model.freezing import freeze_temporarily  # it brings NumPy

    return freeze_temporarily(model, recipe.frozen_layers)


def _describe_limit(request: StepRequest, limit: str | int | None, backend: str) -> tuple[str, ...]:
    card, limit_bytes = request.card, request.limit_bytes or 0
    if limit is None:
        return share_note(card, backend)
    if not card.memory_bytes < limit_bytes < NO_LIMIT_BYTES:
        return ()
    return (f"{card.name} has {format_bytes(card.memory_bytes)}, less than the limit of {format_bytes(limit_bytes)}.",)


def _movable_augmentation(model: Any, recipe: Recipe) -> tuple[str, ...]:
    """Return the augmentation for which a step is not jitted, and without which it would be."""
    from fitroom.backends.choose import current_backend
    from fitroom.keras_model.augmentation import movable_augmentation
    from fitroom.keras_model.jit_choice import jit_choice
    from fitroom.keras_model.layers import can_be_jitted

    is_chosen = recipe.jit is False or jit_choice(model) is False
    if is_chosen or current_backend().name == "torch" or can_be_jitted(model):
        return ()
    return movable_augmentation(model)


def _describe_movable(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        return ()
    return (
        f"The step is not jitted, for {', '.join(names)}. `fitroom.move_augmentation(model)` takes such layers out, "
        "for the input pipeline, and the rest can be jitted; random numbers are other ones then.",
    )


def _describe_remat(model: Any, recipe: Recipe, *, training: bool) -> tuple[str, ...]:
    if not training or not recipe.recomputes:
        return ()
    from fitroom.remat.chooser import describe_remat  # it brings NumPy

    return describe_remat(model, recipe.remat)


def check_batch_size(batch_size: Any) -> int:
    """Return the batch size as an int. Raises InputError where it is no positive whole number."""
    try:
        number = operator.index(batch_size)  # also for NumPy's integers
    except TypeError:
        number = 0
    if number < 1 or isinstance(batch_size, bool):
        raise InputError(
            f"`batch_size` must be a positive whole number. Received: {batch_size!r}.",
            hint="the samples of one optimizer step, such as 32",
        )
    return number


def choose_card(gpu: str | Card | None) -> tuple[Card, tuple[str, ...]]:
    """Return the named card, or the one in this machine, or else the default; and notes on the choice."""
    from fitroom.cards.nvml import live_gpus

    if isinstance(gpu, Card):
        return gpu, ()
    if gpu is not None:
        if not isinstance(gpu, str):
            raise InputError(f"`gpu` must be the name of a card. Received: {gpu!r}.", hint="such as 'RTX 3060'")
        return find_card(gpu), ()
    card = find_card(DEFAULT_GPU)
    if gpus := live_gpus():
        try:
            return find_card(gpus[0].name), ()
        except UnknownNameError:
            return card, (f"{gpus[0].name} is not in the catalogue: this is for a {card.name}, the default.",)
    return card, (
        f"No card was named and none is in this machine: this is for a {card.name}, the default. --gpu names another, "
        "in Python gpu=.",
    )
