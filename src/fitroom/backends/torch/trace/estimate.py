"""The memory of a Keras step on PyTorch, found without running it."""

import importlib.metadata
from contextlib import nullcontext
from typing import Any

import keras

from fitroom.backends.torch.trace.measure import check_card, measure_peak_bytes
from fitroom.backends.torch.trace.platform import cuda
from fitroom.backends.torch.trace.step import RecordedSteps, predict_steps, training_steps
from fitroom.backends.torch.trace.symbolic import fake_device
from fitroom.cards.catalogue import Card, check_nvidia
from fitroom.cards.overhead import context_bytes
from fitroom.errors import BackendError
from fitroom.keras_model.layers import cudnn_loops_note
from fitroom.keras_model.measured_kinds import with_room_for_unmeasured
from fitroom.keras_model.prepared import prepare_model
from fitroom.keras_model.private import all_layers
from fitroom.memory.allocators.replay import Requests, limit_for_all_bytes, replay, smallest_limit_bytes
from fitroom.memory.step import StepRequest, TracedStep
from fitroom.memory.timeline import Buffer, Timeline

TYPICAL_ERROR = 0.0005
"""The median error of the held-out cases in benchmarks/results/predicted.jsonl."""

MARGIN_SHARE = 0.045
"""A share of the smallest limit that the model of the allocator finds, for what only the card decides, and for Python,
which may collect garbage later than counted on. On an H200 all of 32 steps ran under limits that are no larger."""

_OLD_GARBAGE_SHARE = 0.04
_MOST_OLD_GARBAGE_SHARE = 0.45
_LEAST_OLDER_COLLECTIONS = 6
"""What is in use when Python collects older objects too stays until it collects all, dozens of steps later. In a loop
over the words of a text that happens many times a step: an LSTM of 200 words with a mask, at 11 such times, took up to
36 % more on an H200 than is traced. On a CPU it was as traced but grew from step to step; that explains a part of what
it took on the card. An LSTM without a mask, at 5 such times, took no more than is traced."""

_MORE_STEPS = 2
"""How many further steps are followed with micro-batches or recomputing: memory fragments step by step, the more so
where micro-batches differ in size."""

_COLLECTION_ORDERS = 4
"""How many orders of garbage collection are replayed: each process collects at other times. Keras's own steps all ran
without that; a step of three micro-batches that recomputes ran out of memory on the card in its third batch."""

SEGMENT_BYTES = 2 * 1024**2
"""The least that the allocator takes from the card."""


def trace_step(model: Any, request: StepRequest) -> TracedStep:
    """The memory of the step that Keras would run, by fake tensors and a model of the caching allocator."""
    limit_bytes = request.limit_bytes or request.card.memory_bytes - context_bytes(request.card, "torch")
    if request.measure:
        check_card(request.card)
    check_nvidia(request.card)
    with prepare_model(model, request, borrow_values=lambda variables: nullcontext(), slots_scope=fake_device) as ready:
        _check_eager(ready.model, request)
        platform = cuda(request.card)
        steps = training_steps(ready, platform) if request.training else predict_steps(ready, platform)
        measured_bytes = measure_peak_bytes(steps.step, limit_bytes) if request.measure else None
    requests = steps.log.requests()
    unlimited = replay(requests)
    timeline = timeline_of(steps, unlimited.block_bytes)
    smallest_bytes = smallest_limit_bytes(requests, timeline.peak_bytes, unlimited.reserved_bytes)
    if request.micro_batch_sizes or request.recipe.recomputes:
        smallest_bytes = _in_the_long_run(requests, steps.last_event, smallest_bytes)
    has_loop = any(isinstance(layer, keras.layers.RNN) for layer in all_layers(model))
    old_garbage_share = _old_garbage_share(steps.older_collections_a_step) if has_loop else 0.0
    margin_bytes = max(int((MARGIN_SHARE + old_garbage_share) * smallest_bytes), SEGMENT_BYTES)
    traced = TracedStep(
        timeline=timeline,
        required_bytes=smallest_bytes + margin_bytes,
        limit_bytes=limit_bytes,
        method="traced",
        typical_error=TYPICAL_ERROR,
        precision=ready.precision,
        versions={name: importlib.metadata.version(name) for name in ("keras", "torch")},
        notes=(
            *ready.notes,
            *_card_note(request.card, timeline),
            *cudnn_loops_note(model),
            *_old_garbage_note(old_garbage_share),
        ),
    )
    if measured_bytes is not None:
        return traced.as_measured(measured_bytes)
    return with_room_for_unmeasured(traced, model, "torch", jit=False)


def _in_the_long_run(requests: Requests, last_step: int, limit_bytes: int) -> int:
    """A limit that holds some steps more than were recorded, in a few processes."""
    requests = requests.extend(last_step, _MORE_STEPS)
    others = (requests.with_late_collections(seed) for seed in range(_COLLECTION_ORDERS))
    return limit_for_all_bytes([requests, *others], limit_bytes)


def _old_garbage_share(older_collections_a_step: float) -> float:
    if older_collections_a_step < _LEAST_OLDER_COLLECTIONS:
        return 0.0
    return min(_OLD_GARBAGE_SHARE * older_collections_a_step, _MOST_OLD_GARBAGE_SHARE)


def _old_garbage_note(share: float) -> tuple[str, ...]:
    if not share:
        return ()
    return (
        f"Keras runs a long loop in Python, whose garbage Python collects late: what is needed is {share:.0%} higher "
        "for it.",
    )


def _card_note(card: Card, timeline: Timeline) -> tuple[str, ...]:
    if card.architecture == "Hopper" or not any("convolution" in moment.name for moment in timeline.moments):
        return ()
    return ("Scratch memory of convolutions is counted as on an H200: on another card it differs by some MiB.",)


def timeline_of(steps: RecordedSteps, block_bytes: list[int]) -> Timeline:
    """The last step: what it makes, and what it finds there."""
    log, start, end = steps.log, steps.last_step, steps.log.now
    buffers = [
        Buffer(
            size_bytes=size_bytes,
            kind=buffer.kind,
            layer=buffer.layer,
            first=max(buffer.first, start) - start,
            last=(end if buffer.last is None else buffer.last) - start,
        )
        for buffer, size_bytes in zip(log.buffers, block_bytes, strict=True)
        if buffer.last is None or buffer.last >= start
    ]
    return Timeline(buffers=tuple(buffers), moments=tuple(log.moments[start:]))


def _check_eager(model: Any, request: StepRequest) -> None:
    compiled = model.compiled and bool(model.jit_compile) and not model.run_eagerly
    if request.recipe.jit or (request.recipe.jit is None and compiled):
        raise BackendError(
            "The memory of a step under `torch.compile` is not predicted. Received: a step that is to be jitted.",
            hint="leave jit out (--no-jit, or `model.compile(..., jit_compile=False)`), as Keras does by default",
        )
