"""Which operations take memory of the card, and which pass on what they were given.

TensorFlow's kernels decide this one by one; there is no list to read it from, so here is one, in the names of
the operations.
"""

import tensorflow as tf

from fitroom.backends.tensorflow.trace.graph.output import Output
from fitroom.backends.tensorflow.trace.graph.program import Operation

SEND, RECEIVE = "_HostSend", "_Recv"
"""The two halves of a copy from host to card: what is sent is still with the host."""

_SHARING = """Identity IdentityN Reshape Squeeze ExpandDims StopGradient PreventGradient Snapshot EnsureShape
    CheckNumerics Enter RefEnter Exit NextIteration Switch Merge LoopCond Bitcast OptionalFromValue Copy
    PlaceholderWithDefault"""
SHARING = frozenset((*_SHARING.split(), SEND))
"""Their outputs are their inputs under another name."""

_FIRST_INPUT = """Relu Relu6 Elu Selu LeakyRelu Softplus Softsign Sigmoid Tanh Neg Square Sqrt Rsqrt Exp Expm1 Log Log1p
    Abs Sign Floor Ceil Round Rint Erf Erfc Erfinv Inv Reciprocal Sin Cos Tan Atan Asin Acos Sinh Cosh Softmax
    LogSoftmax BiasAdd BiasAddV1 ClipByValue FusedBatchNormV3 FusedBatchNormGradV3 LogicalNot"""
_BOTH_INPUTS = """Add AddV2 Sub Mul MulNoNan Div RealDiv DivNoNan FloorDiv FloorMod Mod Maximum Minimum Pow
    SquaredDifference Atan2 Xdivy Xlogy TanhGrad SigmoidGrad SqrtGrad RsqrtGrad InvGrad ReciprocalGrad ReluGrad
    Relu6Grad EluGrad SeluGrad LeakyReluGrad SoftplusGrad SoftsignGrad LogicalAnd LogicalOr"""
_OF_INPUTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(_FIRST_INPUT.split(), (0,)),
    **dict.fromkeys(_BOTH_INPUTS.split(), (0, 1)),
    **dict.fromkeys(("Select", "SelectV2"), (1, 2)),
}
_LAST_OUTPUT_OF_FIRST_INPUT = ("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits")
_OF_ANY_INPUT = ("AddN", "_FusedMulAdd", "_MklAddN")

_ON_HOST = """Shape ShapeN Size Rank VariableShape BroadcastGradientArgs Range TensorListElementShape
    TensorListLength ConcatOffset LoopCond VarHandleOp NoOp Assert PrintV2 OptionalHasValue"""
_NOT_ON_CARD = frozenset(_ON_HOST.split())
_ON_BITS = frozenset(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "Invert", "LeftShift", "RightShift"))
"""Computed on the card, of whole numbers too. Keras's `argmax`, which metrics of accuracy call, takes the signs of its
input so: with a copy of GPT-2's logits, 12 % of a peak that was measured on an H200."""

_COMPARISONS = frozenset(("Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual"))


def inputs_to_reuse(operation: Operation, slot: int) -> range | tuple[int, ...]:
    """The inputs whose memory the kernel takes for an output where nobody else holds it."""
    if operation.op in _OF_ANY_INPUT:
        return range(len(operation.inputs))
    if operation.op in _LAST_OUTPUT_OF_FIRST_INPUT:
        return (0,) if slot == 1 else ()
    return _OF_INPUTS.get(operation.op, ()) if slot == 0 else ()


def on_card(operation: Operation, output: Output) -> bool:
    """Whether an output is in the memory of the card. Whole numbers that steer kernels stay with the host."""
    if operation.op == "Placeholder":
        return True
    if operation.op in _COMPARISONS and operation.attributes["T"].type == tf.int32.as_datatype_enum:
        return False
    return operation.op not in _NOT_ON_CARD and (operation.op in _ON_BITS or not output.is_int32)
