"""The smallest limit under which TensorFlow's allocator finds room for a jitted step.

XLA asks for all temporaries in one block, so what is free must lie together. Two things keep it apart. A weight is
drawn at random, scaled and shifted, each time into a new piece, and only the last one stays. And all of the
optimizer's slots of one shape are at first the same zeros: the first step cannot update them in place, and gives each
a piece of its own beside the zeros, which then go.
"""

from collections import Counter

from fitroom.backends.tensorflow.step import StepVariable, TensorFlowStep
from fitroom.estimating.allocators.best_fit import BestFitAllocator, DoesNotFit, rounded

_Like = tuple[tuple[int, ...], str]

STEPS = 3
_PRECISION_BYTES = 2**20
_MIB = 2**20

WORKSPACE_BYTES = 32 * _MIB
"""What cuBLAS takes beside the largest multiplication where it is quicker than XLA's own: known on the card alone."""


def required_bytes(step: TensorFlowStep, peak_bytes: int) -> int:
    """The limit that holds the step, a batch that comes ahead of it, and a workspace that was not foreseen."""
    low, high = peak_bytes, 2 * peak_bytes
    block_bytes = peak_bytes - _held_bytes(step)
    if not _runs(step, block_bytes, low):
        while high - low > _PRECISION_BYTES:
            middle = (low + high) // 2
            low, high = (low, middle) if _runs(step, block_bytes, middle) else (middle, high)
        low = high
    return low + step.batch_bytes + WORKSPACE_BYTES


def _held_bytes(step: TensorFlowStep) -> int:
    return sum(rounded(variable.size_bytes) for variable in step.variables) + step.batch_bytes


def _runs(step: TensorFlowStep, block_bytes: int, limit_bytes: int) -> bool:
    allocator = BestFitAllocator(limit_bytes=limit_bytes)
    try:
        _run(step, block_bytes, allocator)
    except DoesNotFit:
        return False
    return True


def _run(step: TensorFlowStep, block_bytes: int, allocator: BestFitAllocator) -> None:
    """Make the variables and train some steps. Raises DoesNotFit."""
    slots = Counter(_like(variable) for variable in step.variables if _is_slot(variable))
    zeros: dict[_Like, int] = {}
    for variable in step.variables:
        if _is_slot(variable):
            if _like(variable) not in zeros:
                zeros[_like(variable)] = allocator.allocate(variable.size_bytes)
            continue
        passing = [allocator.allocate(variable.size_bytes) for _ in range(_passing(variable))]
        allocator.allocate(variable.size_bytes)
        for address in passing:
            allocator.free(address)
    shared = {like for like, count in slots.items() if count > 1}
    for number in range(STEPS):
        batch = allocator.allocate(step.batch_bytes)
        if number == 0:
            for variable in step.variables:
                if _is_slot(variable) and _like(variable) in shared:
                    allocator.allocate(variable.size_bytes)
        allocator.free(allocator.allocate(block_bytes))
        if number == 0:
            for like in shared:
                allocator.free(zeros[like])
        allocator.free(batch)


def _is_slot(variable: StepVariable) -> bool:
    return variable.kind == "optimizer" and bool(variable.shape)


def _like(variable: StepVariable) -> _Like:
    return variable.shape, variable.dtype


def _passing(variable: StepVariable) -> int:
    """How many further pieces its first value takes."""
    return 2 if variable.kind == "weights" and len(variable.shape) > 1 else 0
