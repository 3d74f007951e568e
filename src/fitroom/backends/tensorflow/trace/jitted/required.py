"""The smallest limit under which TensorFlow's allocator finds room for a jitted step.

Besides the step itself it holds what choosing kernels leaves behind. Before XLA compiles a step it tries kernels on the
card. One that asks for more memory than there is is given up, and TensorFlow then keeps the buffer of its result for as
long as the process lives. Depthwise convolutions in float32 have such kernels: in steps of 24 to 43 samples of Xception
on an H200 they asked for 6 to 18 GiB. Under a limit of 8 GiB 0.7 to 1.5 GiB stayed taken, under 16 GiB not more than
0.3, and in half precision nothing.
"""

from math import prod

import tensorflow as tf

from fitroom.backends.tensorflow.trace.jitted.placement import train
from fitroom.backends.tensorflow.trace.step import TensorFlowStep
from fitroom.memory.allocators.best_fit import BestFitAllocator, DoesNotFitError

_PRECISION_BYTES = 2**20

MARGIN_BYTES = 256 * 2**20
MARGIN_SHARE = 0.03
"""What only the card decides upon, such as workspaces. A guess on the safe side: on an H200 Xception ran with 32 MiB to
spare, and three steps of 0.6 to 1.2 GB did not."""


def required_bytes(step: TensorFlowStep, block: int, peak_bytes: int, num_sizes: float = 1.0) -> int:
    """The limit that holds the step, a prefetched batch, and what cannot be foreseen.

    `num_sizes`: how many sizes of batches the step is compiled for, a smaller one by its share.
    """
    replayed_bytes = smallest_limit_bytes(step, block, peak_bytes)
    ahead_bytes = 0 if step.prefetches_next else step.batch_bytes
    needed_bytes = replayed_bytes + ahead_bytes + MARGIN_BYTES + int(MARGIN_SHARE * replayed_bytes)
    return needed_bytes + left_behind_bytes(step, needed_bytes, num_sizes)


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


_DEPTHWISE = ("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput")
_ALL_FAIL = 6 * 2**30
_FEW_FAIL = 15 * 2**30
"""Under a limit of so much. What few leave behind is within what cannot be foreseen."""


def left_behind_bytes(step: TensorFlowStep, needed_bytes: int, num_sizes: float = 1.0) -> int:
    """How much must be there beside what a step needs itself, at most.

    `num_sizes`: how many sizes of batches it is compiled for, a smaller one by its share.
    """
    # Of all results a share that falls with the limit, from one to nothing between the two limits above. The limit is
    # what is needed and this share together.
    results_bytes = num_sizes * _results_bytes(step)
    share = (_FEW_FAIL - needed_bytes) / (_FEW_FAIL - _ALL_FAIL + results_bytes)
    return int(results_bytes * min(1.0, max(0.0, share)))


def _results_bytes(step: TensorFlowStep) -> int:
    """Of depthwise convolutions, each kind of them once: what was tried for one is taken for all that are like it."""
    kinds = {
        (each.type, *(tuple(tensor.shape) for tensor in (*each.inputs, *each.outputs))): each.outputs[0]
        for each in step.concrete.graph.get_operations()
        if each.type in _DEPTHWISE and each.outputs[0].dtype == tf.float32
    }
    return sum(prod(result.shape) * result.dtype.size for result in kinds.values())
