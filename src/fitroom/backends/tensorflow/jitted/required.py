"""The smallest limit under which TensorFlow's allocator finds room for a jitted step."""

from fitroom.backends.tensorflow.jitted.placement import train
from fitroom.backends.tensorflow.step import TensorFlowStep
from fitroom.estimating.allocators.best_fit import BestFitAllocator, DoesNotFitError

_PRECISION_BYTES = 2**20

WORKSPACE_BYTES = 32 * 2**20
"""What a kernel of a library may take that only the card decides upon: cuBLAS's workspace on the newest cards."""


def required_bytes(step: TensorFlowStep, block: int, peak_bytes: int) -> int:
    """The limit that holds the step, a batch that comes ahead of it, and a workspace that was not foreseen."""
    too_small, enough = 0, peak_bytes
    while not _runs(step, block, enough):
        too_small, enough = enough, enough + enough // 4
    while too_small and enough - too_small > _PRECISION_BYTES:
        middle = (too_small + enough) // 2
        too_small, enough = (too_small, middle) if _runs(step, block, middle) else (middle, enough)
    return enough + step.batch_bytes + WORKSPACE_BYTES


def _runs(step: TensorFlowStep, block: int, limit_bytes: int) -> bool:
    try:
        train(step, block, BestFitAllocator(limit_bytes=limit_bytes))
    except DoesNotFitError:
        return False
    return True
