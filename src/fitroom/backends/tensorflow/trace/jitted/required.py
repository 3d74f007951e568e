"""The smallest limit under which TensorFlow's allocator finds room for a jitted step."""

from fitroom.backends.tensorflow.trace.jitted.left_behind import left_behind_bytes
from fitroom.backends.tensorflow.trace.jitted.placement import train
from fitroom.backends.tensorflow.trace.step import TensorFlowStep
from fitroom.memory.allocators.best_fit import BestFitAllocator, DoesNotFitError

_PRECISION_BYTES = 2**20

UNFORESEEN_BYTES = 256 * 2**20
UNFORESEEN_SHARE = 0.03
"""What only the card decides upon, such as workspaces. A guess on the safe side: on an H200 Xception ran with 32 MiB to
spare, and three steps of 0.6 to 1.2 GB did not."""


def required_bytes(step: TensorFlowStep, block: int, peak_bytes: int, parts: float = 1.0) -> int:
    """The limit that holds the step, a batch that comes ahead of it, and what cannot be foreseen.

    `parts`: how many sizes of batches the step is compiled for, a smaller one by its share.
    """
    replayed_bytes = smallest_limit_bytes(step, block, peak_bytes)
    ahead_bytes = 0 if step.sends_next else step.batch_bytes
    needed_bytes = replayed_bytes + ahead_bytes + UNFORESEEN_BYTES + int(UNFORESEEN_SHARE * replayed_bytes)
    return needed_bytes + left_behind_bytes(step, needed_bytes, parts)


def smallest_limit_bytes(step: TensorFlowStep, block: int, peak_bytes: int) -> int:
    """The smallest limit under which a replay of training finds room for everything."""
    too_small, enough = 0, peak_bytes
    while not _runs(step, block, enough):
        too_small, enough = enough, enough + enough // 4
    while too_small and enough - too_small > _PRECISION_BYTES:
        middle = (too_small + enough) // 2
        too_small, enough = (too_small, middle) if _runs(step, block, middle) else (middle, enough)
    return enough


def _runs(step: TensorFlowStep, block: int, limit_bytes: int) -> bool:
    try:
        train(step, block, BestFitAllocator(limit_bytes=limit_bytes))
    except DoesNotFitError:
        return False
    return True
