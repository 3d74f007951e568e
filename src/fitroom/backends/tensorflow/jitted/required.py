"""The smallest limit under which TensorFlow's allocator finds room for a jitted step.

XLA asks for all temporaries in one block, so what is free must lie together. What keeps it apart: making a weight
takes three pieces, two of them for a moment, and the holes they leave are filled by what comes later, or not.
"""

from fitroom.backends.tensorflow.step import StepVariable, TensorFlowStep
from fitroom.estimating.allocators.best_fit import BestFitAllocator, DoesNotFit, rounded

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
        for variable in step.variables:
            passing = [allocator.allocate(variable.size_bytes) for _ in range(_passing(variable))]
            allocator.allocate(variable.size_bytes)
            for address in passing:
                allocator.free(address)
        for _ in range(STEPS):
            held = [allocator.allocate(step.batch_bytes), allocator.allocate(block_bytes)]
            for address in held:
                allocator.free(address)
    except DoesNotFit:
        return False
    return True


def _passing(variable: StepVariable) -> int:
    """How many further pieces its first value takes: random numbers are drawn, scaled and shifted."""
    return 2 if variable.kind == "weights" and len(variable.shape) > 1 else 0
