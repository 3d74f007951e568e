"""Scratch memory that kernels take while they run.

TensorFlow's own part is in its kernels: copies of the filter in the layout cuDNN wants, unevenly padded images, a
gradient that is written beside its output and then takes its place. cuDNN's part depends on the algorithm that wins
when TensorFlow times them; the rules below say which won on an H200 (cuDNN 9.3). They come down to this: a float32
convolution in the layout NCHW is computed on copies in NHWC, as matrix units want them, unless it is so light that
copying would cost more than it gains; in NHWC there is nothing to copy. TensorFlow's kernels for 3-D convolutions take
the same copies; which of cuDNN's algorithms win there was not measured, and is taken to be as in two dimensions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fitroom.backends.tensorflow.trace.graph.kernels import ScratchPlan
from fitroom.backends.tensorflow.trace.graph.output import Output
from fitroom.backends.tensorflow.trace.graph.program import Operation

PLAIN = {
    "Conv2D": "forward",
    "_FusedConv2D": "forward",
    "Conv2DBackpropInput": "input",
    "Conv2DBackpropFilter": "filter",
    "Conv3D": "forward",
    "Conv3DBackpropInputV2": "input",
    "Conv3DBackpropFilterV2": "filter",
}
DEPTHWISE = {
    "DepthwiseConv2dNative": "forward",
    "DepthwiseConv2dNativeBackpropInput": "input",
    "DepthwiseConv2dNativeBackpropFilter": "filter",
}
"""Operations, and what each of them computes: the output, or a gradient."""


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """One convolution, forward or backward, with every shape known."""

    computes: str
    is_fused: bool
    is_depthwise: bool
    channels_first: bool
    itemsize: int
    batch: int
    in_channels: int
    out_channels: int
    in_size: tuple[int, ...]
    out_size: tuple[int, ...]
    kernel: tuple[int, ...]
    filter_elements: int
    stride: int
    pads_unevenly: tuple[bool, ...]
    """Whether a side needs one more row of padding at its end than at its beginning."""

    @property
    def in_bytes(self) -> int:
        """The images that go in."""
        return self.batch * self.in_channels * math.prod(self.in_size) * self.itemsize

    @property
    def padded_bytes(self) -> int:
        """The same with the uneven rows of padding."""
        padded = math.prod(size + uneven for size, uneven in zip(self.in_size, self.pads_unevenly, strict=True))
        return self.batch * self.in_channels * padded * self.itemsize

    @property
    def filter_bytes(self) -> int:
        """The weights."""
        return self.filter_elements * self.itemsize

    @property
    def is_pointwise(self) -> bool:
        """1 x 1, one multiplication of matrices."""
        return math.prod(self.kernel) == 1


def convolution_of(operation: Operation, inputs: Sequence[Output]) -> Convolution | None:
    """The convolution that an operation is, or None."""
    computes = PLAIN.get(operation.op) or DEPTHWISE.get(operation.op)
    if computes is None:
        return None
    made = operation.outputs[0]
    images, weights, result = (
        {
            "forward": (inputs[0], inputs[1], made),
            "input": (made, inputs[1], inputs[-1]),
            "filter": (inputs[0], made, inputs[-1]),
        }[computes]
        if len(inputs) >= 2
        else (made, made, made)
    )
    if any(each.num_elements is None or len(each.shape or ()) not in (4, 5) for each in (images, weights, result)):
        return None
    channels_first = operation.attributes["data_format"].s in (b"NCHW", b"NCDHW")
    batch, in_channels, in_size = _parts(images, channels_first)
    _, out_channels, out_size = _parts(result, channels_first)
    kernel = tuple(length or 0 for length in (weights.shape or ())[:-2])
    strides = operation.attributes["strides"].list.i
    stride = strides[2 if channels_first else 1]
    same = operation.attributes["padding"].s == b"SAME"
    return Convolution(
        computes=computes,
        is_fused=operation.op.startswith("_Fused"),
        is_depthwise=operation.op in DEPTHWISE,
        channels_first=channels_first,
        itemsize=int(made.dtype.size),
        batch=batch,
        in_channels=in_channels,
        out_channels=out_channels,
        in_size=in_size,
        out_size=out_size,
        kernel=kernel,
        filter_elements=weights.num_elements or 0,
        stride=stride,
        pads_unevenly=tuple(
            same and _is_uneven(size, made, length, stride)
            for size, made, length in zip(in_size, out_size, kernel, strict=True)
        ),
    )


def _parts(images: Output, channels_first: bool) -> tuple[int, int, tuple[int, ...]]:
    shape = tuple(length or 0 for length in images.shape or ())
    return (shape[0], shape[1], shape[2:]) if channels_first else (shape[0], shape[-1], shape[1:-1])


def _is_uneven(size: int, made: int, kernel: int, stride: int) -> bool:
    return max((made - 1) * stride + kernel - size, 0) % 2 == 1


_NOTHING = ScratchPlan()
_PARTIAL_SUMS = 15
_MOST_PARTIAL_BYTES = 9_400_000
"""A gradient of a filter is summed in parts, up to this many and this much."""

_LAYOUT_COPIES = {"FusedBatchNormV3": 2, "FusedBatchNormGradV3": 3}
"""Normalisations, and how many tensors each of them copies from or into the layout that cuDNN computes in."""

_FEW_CHANNELS = 4
_HEAVY, _HEAVY_IN_ODD_PLANES = 600, 160
"""From which work a pointwise convolution is worth copies of its images; see `_work`."""


def scratch_plan(operation: Operation, inputs: Sequence[Output]) -> ScratchPlan:
    """The requests of the operation's kernel, in order."""
    if operation.op in _LAYOUT_COPIES:
        return _of_normalisation(operation, inputs)
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


def _of_normalisation(operation: Operation, inputs: Sequence[Output]) -> ScratchPlan:
    """In training cuDNN is given channels first; the kernel copies what comes in and goes out in another layout."""
    attributes = operation.attributes
    is_copied = attributes["is_training"].b and attributes["data_format"].s in (b"NHWC", b"NDHWC")
    size_bytes = inputs[0].size_bytes if is_copied else 0
    return ScratchPlan(sizes=(size_bytes,) * _LAYOUT_COPIES[operation.op]) if size_bytes else _NOTHING


def _workspace_bytes(found: Convolution) -> int:
    if found.is_depthwise:
        return 16 * found.batch * found.filter_bytes if found.computes == "filter" else 0
    if not found.channels_first:
        return _of_nhwc(found)
    if found.is_pointwise:
        return _of_pointwise(found)
    if found.in_channels <= _FEW_CHANNELS and found.kernel == (3, 3):
        return 0
    images, weights, result = _copies(found)
    if found.computes == "forward" and found.is_fused and found.in_channels <= 64:
        return images + weights
    if found.computes == "filter":
        return images + result + max(weights, _partial_bytes(found))
    return images + weights + result


def _of_pointwise(found: Convolution) -> int:
    images, _, result = _copies(found)
    if found.stride > 1:
        is_copied = found.in_channels >= 128
    else:
        odd = math.prod(found.in_size) % 4 != 0
        is_copied = _work(found) >= (_HEAVY_IN_ODD_PLANES if odd else _HEAVY)
    if found.computes != "filter":
        return images + result if is_copied else 0
    copied = images + result + _partial_bytes(found)
    # Without copies there is one gradient of the filter for each image, which are summed in the end.
    return copied if is_copied else min(copied, found.batch * found.filter_bytes)


def _of_nhwc(found: Convolution) -> int:
    images, weights, result = _copies(found)
    units = _channels_of_a_unit(found)
    padded = images + weights if found.in_channels % units else 0
    if found.computes != "filter":
        return padded if found.computes == "forward" else 0
    if found.itemsize > 2 and not found.is_pointwise:
        return images + result + _partial_bytes(found)
    return padded + _partial_bytes(found)


def _copies(found: Convolution) -> tuple[int, int, int]:
    """The bytes of images, filter and result in NHWC, channels rounded up to what a matrix unit takes."""
    units = _channels_of_a_unit(found)
    in_channels, out_channels = (-(-number // units) * units for number in (found.in_channels, found.out_channels))
    images = found.batch * in_channels * math.prod(found.in_size)
    result = found.batch * out_channels * math.prod(found.out_size)
    weights = math.prod(found.kernel) * in_channels * out_channels
    return images * found.itemsize, weights * found.itemsize, result * found.itemsize


def _channels_of_a_unit(found: Convolution) -> int:
    return 16 // found.itemsize


def _partial_bytes(found: Convolution) -> int:
    return min(_PARTIAL_SUMS * found.filter_bytes, max(_MOST_PARTIAL_BYTES, found.filter_bytes))


def _work(found: Convolution) -> float:
    """Multiplications for each number that is read or written."""
    return found.in_channels * found.out_channels / (found.in_channels + found.out_channels)
