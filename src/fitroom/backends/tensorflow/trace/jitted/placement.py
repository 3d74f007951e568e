"""Where TensorFlow's allocator puts the variables of a jitted step and its one block of temporaries.

XLA asks for all temporaries in one block, so what is free must lie together. Two things keep it apart. A weight is
drawn at random, scaled and shifted, each time into a new piece, and only the last one stays. And all of the
optimizer's slots of one shape are at first the same zeros: the first step cannot update them in place, and gives each
a piece of its own beside the zeros, which then go. What comes to lie in a hole that is a little too large gets all of
it: so the block gets the place of a batch beside it, when that batch is done and the next lies elsewhere.
"""

from collections import Counter

from fitroom.backends.tensorflow.trace.step import StepVariable, TensorFlowStep
from fitroom.memory.allocators.best_fit import BestFitAllocator, round_up

_STEADY_STEPS = 4
_Like = tuple[tuple[int, ...], str]


def block_bytes(step: TensorFlowStep, peak_bytes: int) -> int:
    """What of the peak is XLA's own: not variables, nor the batch."""
    return peak_bytes - sum(round_up(variable.size_bytes) for variable in step.variables) - step.batch_bytes


def train(step: TensorFlowStep, block: int, allocator: BestFitAllocator) -> int:
    """Make the variables and train some steps: the most in use in a steady one. Raises DoesNotFitError."""
    zeros = _make_variables(step, allocator)
    prefetched = allocator.allocate(step.batch_bytes) if step.prefetches_next else None
    batch = allocator.allocate(step.batch_bytes)
    for variable in step.variables:
        if _is_slot(variable) and _like(variable) in zeros:
            allocator.allocate(variable.size_bytes)
    allocator.free(allocator.allocate(block))
    for address in (*zeros.values(), batch):
        allocator.free(address)
    allocator.peak_bytes = allocator.in_use_bytes
    for _ in range(_STEADY_STEPS):
        following = allocator.allocate(step.batch_bytes)
        batch, prefetched = (following, None) if prefetched is None else (prefetched, following)
        allocator.free(allocator.allocate(block))
        allocator.free(batch)
    return allocator.peak_bytes


def _make_variables(step: TensorFlowStep, allocator: BestFitAllocator) -> dict[_Like, int]:
    """The address of the zeros that several slots share, by what they have in common."""
    counts = Counter(_like(variable) for variable in step.variables if _is_slot(variable))
    zeros: dict[_Like, int] = {}
    for variable in step.variables:
        shared = _is_slot(variable) and counts[_like(variable)] > 1
        if shared and _like(variable) in zeros:
            continue
        passing = [allocator.allocate(variable.size_bytes) for _ in range(_passing(variable))]
        address = allocator.allocate(variable.size_bytes)
        if shared:
            zeros[_like(variable)] = address
        for passed in passing:
            allocator.free(passed)
    return zeros


def _is_slot(variable: StepVariable) -> bool:
    return variable.kind == "optimizer" and bool(variable.shape)


def _like(variable: StepVariable) -> _Like:
    return variable.shape, variable.dtype


def _passing(variable: StepVariable) -> int:
    """How many further pieces its first value takes."""
    return 2 if variable.kind == "weights" and len(variable.shape) > 1 else 0
