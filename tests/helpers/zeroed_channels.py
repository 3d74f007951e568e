"""A check of structured pruning: the model that is left answers as the whole one with the removed channels at zero."""

import numpy as np

from fitroom.lean.importance import score_channels
from fitroom.lean.network import read_network
from fitroom.lean.selection import select_channels
from fitroom.lean.structured import build_pruned


def prune_and_zero(model, sparsity):
    """The pruned model; `model` itself gets zeros wherever a removed channel lies in its weights.

    Holds for models without a normalisation over channels.
    """
    network = read_network(model)
    channels = network.channels
    selection = select_channels(channels, score_channels(channels), sparsity)
    pruned = build_pruned(network, selection)
    for place in channels.places.values():
        if place.channels is None:
            continue
        weights = place.layer.get_weights()
        array = np.moveaxis(weights[place.weight], place.axis, 0)
        if len(array) != len(place.channels):  # each group of a convolution in groups indexes its inputs by itself
            continue
        kept = selection.kept_places(channels, place.channels)
        array[np.setdiff1d(np.arange(len(array)), kept)] = 0
        place.layer.set_weights(weights)
    return pruned


def draw_weights(model, seed=0):
    """Fill a model with random weights under which channels differ: a new BatchNormalization treats all alike."""
    random = np.random.default_rng(seed)
    for layer in model.layers:
        if getattr(layer, "layers", None):
            draw_weights(layer, seed + 1)
            continue
        drawn = []
        for weight in layer.weights:
            shape = tuple(weight.shape)
            if "variance" in weight.name or "gamma" in weight.name:
                drawn.append(random.uniform(0.5, 1.5, shape))
            elif len(shape) < 2 or "count" in weight.name:
                drawn.append(random.normal(0, 0.3, shape))
            else:
                drawn.append(random.normal(0, 1.4 / np.sqrt(np.prod(shape[:-1])), shape))
        if drawn and type(layer).__name__ != "Normalization":
            layer.set_weights([each.astype("float32") for each in drawn])
