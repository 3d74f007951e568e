"""What layers of sequences do with channels: embeddings, attention, recurrent layers."""

from typing import Any

from fitroom.lean.calls import Call, keep, pin_others, whole
from fitroom.lean.channels import Channels, Layout


def embedding(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """The channels of each token's vector."""
    layer = call.layer
    channels.pin_all(call.layouts, f"{call.name} takes numbers of tokens")
    made = channels.make(layer, layer.output_dim)
    channels.put(layer, layer.embeddings, 1, made)
    channels.size(layer, "output_dim", made)
    return ((*whole(call.outputs[0][:-1]), made),)


def attention(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """MultiHeadAttention: the channels of query, value, key and output are pruned; heads stay as they are."""
    layer, config = call.layer, call.layer.get_config()
    if config.get("output_shape") or config.get("use_gate") or len(call.arguments.args) > 3:
        return keep(channels, call)
    names = ("query", "value", "key")
    given = dict(zip(names, call.arguments.args, strict=False)) | call.arguments.kwargs
    layouts = {id(tensor): layout for tensor, layout in zip(call.tensors(), call.layouts, strict=True)}
    parts = {name: layouts[id(given[name])] for name in names if given.get(name) is not None}
    pin_others(channels, call, -1, does="attends along")
    for name, tensor in given.items():
        if name not in names and id(tensor) in layouts:
            channels.pin_all([layouts[id(tensor)]], f"{call.name} takes it as {name}")
    for part, layout in (
        (layer.query_dense, parts["query"]),
        (layer.value_dense, parts["value"]),
        (layer.key_dense, parts.get("key", parts["value"])),
    ):
        channels.put(layer, part.kernel, 0, layout[-1])
    made = channels.make(layer, call.outputs[0][-1] or 0)
    channels.put(layer, layer.output_dense.kernel, -1, made)
    channels.put(layer, layer.output_dense.bias, 0, made, scores=False)
    channels.size(layer, "output_shape", made)
    return ((*whole(call.outputs[0][:-1]), made), *(whole(shape) for shape in call.outputs[1:]))


def recurrent(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """LSTM, GRU and the like, and Bidirectional ones: what goes in is pruned, the units stay as they are."""
    layer = call.layer
    ways = [getattr(layer, name) for name in ("forward_layer", "backward_layer") if hasattr(layer, name)] or [layer]
    cells: list[Any] = [getattr(way, "cell", None) for way in ways]
    others = {name for name, given in call.arguments.kwargs.items() if given is not None} - {"mask", "training"}
    if others or len(call.arguments.args) > 1 or any(type(cell).__name__ not in _CELLS for cell in cells):
        return keep(channels, call)
    pin_others(channels, call, -1, does="goes along")
    channels.pin_all(call.layouts[1:], f"{call.name} takes it as a mask")
    for cell in cells:
        channels.put(layer, cell.kernel, 0, call.layouts[0][-1])
    return tuple(whole(shape) for shape in call.outputs)


_CELLS = ("LSTMCell", "GRUCell", "SimpleRNNCell")
