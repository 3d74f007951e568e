"""Scratch memory that kernels take while they run.

TensorFlow's own part is in its kernels: copies of the filter in the layout cuDNN wants, unevenly padded pictures, a
gradient that is written beside its output and then takes its place. cuDNN's part depends on the algorithm that wins
when TensorFlow times them; the rules below say which won on an H200 (cuDNN 9.3). They come down to this: a float32
convolution in the layout NCHW is computed on copies in NHWC, as matrix units want them, unless it is so light that
copying would cost more than it gains; in NHWC there is nothing to copy.
"""

from collections.abc import Sequence

from fitroom.backends.tensorflow.trace.graph.convolution import Convolution, convolution_of
from fitroom.backends.tensorflow.trace.graph.kernels import ScratchPlan
from fitroom.backends.tensorflow.trace.graph.program import Operation, Output

_NOTHING = ScratchPlan()
_PARTIAL_SUMS = 15
_MOST_PARTIAL_BYTES = 9_400_000
"""A gradient of a filter is summed in parts, up to this many and this much."""

_FEW_CHANNELS = 4
_HEAVY, _HEAVY_IN_ODD_PLANES = 600, 160
"""From which work a pointwise convolution is worth copies of its pictures; see `_work`."""


def scratch_plan(operation: Operation, inputs: Sequence[Output]) -> ScratchPlan:
    """The requests of the operation's kernel, in order."""
    found = convolution_of(operation, inputs)
    if found is None:
        return _NOTHING
    if found.is_depthwise and found.itemsize > 2:
        return _NOTHING  # TensorFlow's own kernels
    if found.is_pointwise and found.stride == 1 and not found.channels_first and not found.is_depthwise:
        return _NOTHING  # one multiplication of matrices
    sizes = [found.filter_bytes]
    if any(found.pads_unevenly):
        sizes.append(found.padded_bytes)
    place = None
    if found.computes == "input":
        place = len(sizes)
        sizes.append(found.in_bytes)
    return ScratchPlan(sizes=tuple(sizes), workspace_bytes=_workspace_bytes(found), place_of_output=place)


def _workspace_bytes(found: Convolution) -> int:
    if found.is_depthwise:
        return 16 * found.batch * found.filter_bytes if found.computes == "filter" else 0
    if not found.channels_first:
        return _of_nhwc(found)
    if found.is_pointwise:
        return _of_pointwise(found)
    if found.in_channels <= _FEW_CHANNELS and found.kernel == (3, 3):
        return 0
    pictures, weights, result = _copies(found)
    if found.computes == "forward" and found.is_fused and found.in_channels <= 64:
        return pictures + weights
    if found.computes == "filter":
        return pictures + result + max(weights, _partial_bytes(found))
    return pictures + weights + result


def _of_pointwise(found: Convolution) -> int:
    pictures, _, result = _copies(found)
    if found.stride > 1:
        is_copied = found.in_channels >= 128
    else:
        odd = found.in_size[0] * found.in_size[1] % 4 != 0
        is_copied = _work(found) >= (_HEAVY_IN_ODD_PLANES if odd else _HEAVY)
    if found.computes != "filter":
        return pictures + result if is_copied else 0
    copied = pictures + result + _partial_bytes(found)
    # Without copies there is one gradient of the filter for each image, which are summed in the end.
    return copied if is_copied else min(copied, found.batch * found.filter_bytes)


def _of_nhwc(found: Convolution) -> int:
    pictures, weights, result = _copies(found)
    units = _channels_of_a_unit(found)
    padded = pictures + weights if found.in_channels % units else 0
    if found.computes != "filter":
        return padded if found.computes == "forward" else 0
    if found.itemsize > 2 and not found.is_pointwise:
        return pictures + result + _partial_bytes(found)
    return padded + _partial_bytes(found)


def _copies(found: Convolution) -> tuple[int, int, int]:
    """The bytes of pictures, filter and result in NHWC, channels rounded up to what a matrix unit takes."""
    units = _channels_of_a_unit(found)
    in_channels, out_channels = (-(-number // units) * units for number in (found.in_channels, found.out_channels))
    pictures = found.batch * in_channels * found.in_size[0] * found.in_size[1]
    result = found.batch * out_channels * found.out_size[0] * found.out_size[1]
    weights = found.kernel[0] * found.kernel[1] * in_channels * out_channels
    return pictures * found.itemsize, weights * found.itemsize, result * found.itemsize


def _channels_of_a_unit(found: Convolution) -> int:
    return 16 // found.itemsize


def _partial_bytes(found: Convolution) -> int:
    return min(_PARTIAL_SUMS * found.filter_bytes, max(_MOST_PARTIAL_BYTES, found.filter_bytes))


def _work(found: Convolution) -> float:
    """Multiplications for each number that is read or written."""
    return found.in_channels * found.out_channels / (found.in_channels + found.out_channels)
