"""Sums and means: a long reduction is split over thread blocks, whose partial results lie in scratch memory.

The split is that of PyTorch's `setReduceConfig`: as many blocks as keep every multiprocessor busy.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import torch

from fitroom.cards.catalogue import Card
from fitroom.cards.targets import threads_per_multiprocessor

_WARP = 32
_MOST_THREADS = 512
_LEAST_VALUES_A_THREAD = 16
_MOST_VALUES_A_THREAD = 256
_USUAL_THREADS = 2048
_PARTIAL_BYTES = 4
"""Partial results are float32, also of halves."""

_WELFORD_BYTES = 16
"""Mean, deviation and counts, for a variance."""


def reductions_on(card: Card) -> dict[Any, Callable[..., Any]]:
    """The operations that reduce."""
    aten = torch.ops.aten
    plain = (
        aten.sum.dim_IntList,
        aten.mean.dim,
        aten.sum.default,
        aten.mean.default,
        aten.amax.default,
        aten.amin.default,
    )
    variances = (aten.var.correction, aten.var_mean.correction, aten.std.correction)
    kernels = {operation: _reduction(card, _PARTIAL_BYTES) for operation in plain}
    return kernels | {operation: _reduction(card, _WELFORD_BYTES) for operation in variances}


def scratch_bytes(
    shape: tuple[int, ...], strides: tuple[int, ...], dims: tuple[int, ...], partial_bytes: int, card: Card
) -> int:
    """The scratch memory of reducing a tensor over some of its dimensions."""
    reduced = [(strides[dim], shape[dim]) for dim in dims if shape[dim] > 1]
    kept = sorted((strides[dim], shape[dim]) for dim in range(len(shape)) if dim not in dims and shape[dim] > 1)
    num_outputs = prod(length for _, length in kept)
    num_inputs = prod(length for _, length in reduced)
    along_inputs = not kept or (bool(reduced) and min(reduced)[0] < kept[0][0])
    vector = 1 if along_inputs or kept[0][0] != 1 else _vector_length(kept[0][1], [*reduced, *kept[1:]])
    width_of, height_of = (num_inputs, num_outputs) if along_inputs else (num_outputs // vector, num_inputs)
    width, height = _block(width_of, height_of, _MOST_THREADS // vector)
    values = num_inputs
    outputs_a_block = 1 if along_inputs else width
    if along_inputs:
        values = -(-num_inputs // width)
    if values < height * _LEAST_VALUES_A_THREAD and values < _MOST_VALUES_A_THREAD:
        return 0  # every thread does all of an output
    values = -(-num_inputs // (height * (width if along_inputs else 1)))
    threads = threads_per_multiprocessor(card) or _USUAL_THREADS
    wanted_blocks = card.sm_count * (threads // (width * height))
    grid = -(-(num_outputs // vector) // outputs_a_block)
    if values < _MOST_VALUES_A_THREAD or grid > wanted_blocks:
        return 0
    blocks = min(-(-wanted_blocks // grid), -(-values // _LEAST_VALUES_A_THREAD))
    blocks = max(blocks, -(-values // _MOST_VALUES_A_THREAD))
    if blocks == 1:
        return 0
    return partial_bytes * num_outputs * blocks * (1 if along_inputs else width * vector)


def _reduction(card: Card, partial_bytes: int) -> Callable[..., Any]:
    def kernel(recorder: Any, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = operation(*args, **kwargs)
        for part in result if isinstance(result, tuple) else (result,):
            recorder.follow(part)
        x = args[0]
        dims = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) and args[1] else range(x.ndim)
        dims = tuple(dim % x.ndim for dim in dims) if x.ndim else ()
        if x.numel():
            recorder.release(recorder.hold(scratch_bytes(tuple(x.shape), x.stride(), dims, partial_bytes, card)))
        return result

    return kernel


def _vector_length(length: int, others: list[tuple[int, int]]) -> int:
    """How many neighbouring outputs a thread makes at once: 4, or fewer where something does not divide by it."""
    vector = 4
    for number in (length, *(stride for stride, _ in others)):
        while number % vector:
            vector //= 2
    return vector


def _block(dim0: int, dim1: int, most_threads: int) -> tuple[int, int]:
    """Width and height of a thread block."""
    wide, high = (min(_last_power_of_2(dim), most_threads) for dim in (dim0, dim1))
    height = min(high, most_threads // min(wide, _WARP))
    return min(wide, most_threads // height), height


def _last_power_of_2(number: int) -> int:
    return 1 << max(number.bit_length() - 1, 0)
