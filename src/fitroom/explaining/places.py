"""Where in a training a failure happened: layer, operation and phase, read from names of operations and tracebacks."""

import re
from dataclasses import dataclass

from fitroom.explaining.failure import Phase

_MODEL_NAME = re.compile(r"(?:model|sequential|functional|StatefulPartitionedCall|PartitionedCall)(?:_\d+)*$")
_OPERATION = re.compile(
    r"(?:[A-Z]\w*|concat|convolution|add|mul|sub|div|truediv|mean|sum|batchnorm|moments|depthwise|separable_conv2d|"
    r"transpose|matmul|dot_general|conv_general_dilated|zeros|zeros_like|ones|ones_like|split|stack|strided_slice|"
    r"cond|while|einsum|reduce_\w+|select_n|max|min|exp|tanh|sqrt|broadcast_in_dim|Cast|random_\w+)(?:_\d+)?(?:\[.*)?$"
)
_OPTIMIZER = re.compile(
    r"(?:^|/)(?:Adam|AdamW|SGD|RMSprop|Nadam|Adagrad|Adadelta|Adamax|Ftrl|Lion|Adafactor|Momentum|optimizer)(?:_\d+)?/"
    r"|(?:^|/)(?:update|apply_gradients|assign_moving)[\w/]*",
    re.IGNORECASE,
)
_WRAPPED = re.compile(r"(?:jit|pjit|jvp|vmap|transpose|remat|checkpoint|custom_\w+)\((.*)\)$")


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a name or a line of a traceback shows of the place."""

    layer: str | None = None
    operation: str | None = None
    phase: Phase | None = None


def read_node(name: str) -> Place:
    """Read the name of a node of TensorFlow's graph.

    >>> read_node("gradient_tape/model/conv2d_58/Conv2D/Conv2DBackpropInput")
    Place(layer='conv2d_58', operation='Conv2DBackpropInput', phase='backward')
    >>> read_node("model/decoder_stage_3_concat/concat")
    Place(layer='decoder_stage_3_concat', operation='concat', phase='forward')
    """
    is_backward = bool(re.search(r"(?:^|/)(?:gradient_tape|gradients)/|_grad(?:_\d+)?/|Backprop|Grad\b", name))
    short = re.sub(r"^.*?(?:gradient_tape|gradients)/", "", name)
    short = re.sub(r"(/while)/body/.*(/\w+)$", r"\1\2", short)  # a recurrent layer's loop repeats its path
    parts = [part for part in short.split("/") if part]
    operation = parts[-1] if parts else None
    while parts and (_OPERATION.fullmatch(parts[-1]) or parts[-1].endswith("_grad")):
        parts.pop()
    while len(parts) > 1 and _MODEL_NAME.fullmatch(parts[0]):
        parts.pop(0)
    if parts and _MODEL_NAME.fullmatch(parts[0]):
        parts = []
    phase: Phase | None = "backward" if is_backward else "update" if _OPTIMIZER.search(f"{name}/") else None
    if phase is None and parts:
        phase = "forward"
    return Place(layer="/".join(parts) or None if phase != "update" else None, operation=operation, phase=phase)


def undo_numbering(layer: str) -> str:
    """The layer's own name from that of a node of Keras 3's graph.

    Keras 3 opens each scope twice, and TensorFlow numbers the second: the nodes of `dense` are in `dense_1`, those of
    `dense_1` in `dense_1_2`. Seen in 3.3, 3.6, 3.10 and 3.15.

    >>> undo_numbering("encoder_1/dense_1_2")
    'encoder/dense_1'
    """
    return "/".join(re.sub(r"_\d+$", "", part) for part in layer.split("/"))


def read_op_name(name: str) -> Place:
    """Read the name that XLA keeps of an operation of JAX.

    >>> read_op_name("jit(train_step)/jit(main)/transpose(jvp(Decoder))/layers_11/mlp/dot_general[precision=None]")
    Place(layer='Decoder/layers_11/mlp', operation='dot_general', phase='backward')
    """
    name = re.sub(r"\[.*", "", name)
    is_backward, is_forward = "transpose(jvp(" in name, "jvp(" in name
    parts = [_unwrap(part) for part in name.split("/") if not re.match(r"p?jit\(", part)]
    operation = parts[-1] if parts else None
    layer = "/".join(part for part in parts[:-1] if part)
    phase: Phase | None = "backward" if is_backward else "forward" if is_forward else None
    return Place(layer=layer or None, operation=operation, phase=phase)


def _unwrap(part: str) -> str:
    while match := _WRAPPED.match(part):
        part = match[1]
    return part


_NODE = re.compile(
    r"\{\{node ([^}\s]+)\}\}|\[\[[Nn]ode:? ([^\s\]{]+)(?:\s|\]|$)|Detected at node '?([^\s']+)|^Node: '?([^\s']+)"
)
_REQUESTED_BY = re.compile(r"requested by op ([\w./:-]*/[\w./:-]+)")
_OP_NAME = re.compile(r"""op_name="([^"]+)"|Operator: op_name=['"]([^'"]+)""")
_KERAS_LAYER = re.compile(
    r"(?:Exception encountered when calling layer|[Cc]all arguments received by layer) ['\"“]?([\w./-]+)['\"”]? ?"
    r"\(type (\w+)\)"
)
_KERAS_CALL = re.compile(r"Exception encountered when calling (\w+)\.call\(\)")

# The phase that a line of a traceback shows, the first that matches. A recomputed forward pass runs inside the
# backward pass, so backward comes before forward.
_FRAME_WORDS: dict[Phase, tuple[str, ...]] = {
    "autotuning": (
        r"No valid config found|configs failed during profiling|Failed to get configs for",
        r"[Aa]utotun",
        r"best cudnn convolution algorithm",
        r"[Pp]rofiling failure on",
        r"Trying algorithm",
    ),
    "backward": (
        r"\.backward\(",
        r"autograd[/\\](?:__init__|graph|function)\.py",
        r"run_backward",
        r"in backward$",
        r"tape\.gradient\(",
    ),
    "update": (
        r"optimizer\.step\(",
        r"torch[/\\]optim[/\\]\w+\.py",
        r"apply_gradients\b",
        r"optimizer\.apply\(",
        r"optimizers[/\\]\w+\.py",
    ),
    "input": (r"DataLoader worker", r"utils[/\\]data[/\\](?:dataloader|_utils)", r"in worker\b.*shm"),
    "building": (r"Unable to automatically build", r"in _apply$", r", in build$", r"from_pretrained\("),
    "forward": (r", in forward$", r"in _call_impl", r"forward_call\(", r"self\.forward\("),
}
_FRAMES = tuple((re.compile("|".join(words)), phase) for phase, words in _FRAME_WORDS.items())
_STRENGTH: dict[Phase, int] = {"autotuning": 5, "backward": 4, "update": 3, "input": 2, "building": 1, "forward": 0}


WORDS = (
    *("node", "op_name", "layer", "calling", "requested by", "backward", "forward", "gradient", "optim", "autograd"),
    *(
        "dataloader",
        "worker",
        "build",
        "_apply",
        "pretrained",
        "_call_impl",
        "autotun",
        "config",
        "algorithm",
        "profil",
    ),
)
"""One of these is in every line, in small letters, that shows a place."""


def read_place(line: str) -> Place | None:
    """What a line shows of the place of a failure; None for most lines."""
    if match := _NODE.search(line):
        return read_node(next(filter(None, match.groups())))
    if match := _REQUESTED_BY.search(line):
        return read_node(match[1])
    if match := _OP_NAME.search(line):
        name = next(filter(None, match.groups()))
        if "/" not in name:
            return None
        return read_op_name(name) if "jit(" in name else read_node(name)  # TensorFlow's, where XLA compiled it
    if match := _KERAS_LAYER.search(line):
        return Place(layer=match[1], operation=match[2])
    if match := _KERAS_CALL.search(line):
        return Place(operation=match[1], phase="forward")
    for regex, phase in _FRAMES:
        if regex.search(line):
            return Place(phase=phase)
    return None


def combine_places(places: list[Place]) -> Place:
    """The layer that was named first, and the phase that says most."""
    phases: list[Phase] = [place.phase for place in places if place.phase is not None and place.layer is None]
    named = next((place for place in places if place.layer is not None), Place())
    phase = max(phases, key=lambda phase: _STRENGTH[phase], default=None)
    if named.phase is not None and phase != "autotuning":  # the operation that is tried out is named, too
        phase = named.phase
    operation = named.operation or next((place.operation for place in places if place.operation), None)
    return Place(layer=named.layer, operation=operation, phase=phase)
