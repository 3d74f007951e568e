"""How important each channel is: by the size of its weights, or by what the loss says of them."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from fitroom.errors import InputError
from fitroom.keras_model.twin import compile_arguments, compile_like
from fitroom.lean.channels import Channels
from fitroom.lean.rebuilding import Rebuilt, copy_layer

Values = Mapping[int, list[Any]]
"""Arrays of the shapes of a layer's weights, by the id of the layer."""


def score_channels(channels: Channels, values: Values | None = None) -> dict[int, float]:
    """The importance of each set of channels: the norm of the values along it, averaged over all layers it lies in.

    The norms of one weight are divided by their mean, so that each layer counts as much as any other.

    Args:
        channels: All channels of a model.
        values: What to take the norm of, in place of the weights themselves.
    """
    totals: dict[int, float] = defaultdict(float)
    counts: dict[int, int] = defaultdict(int)
    for place in channels.places.values():
        if place.channels is None or not place.scores:
            continue
        weights = values[id(place.layer)] if values else None
        array = weights[place.weight] if weights else np.asarray(place.layer.get_weights()[place.weight])
        squares = np.square(array.astype(np.float64))
        sums = squares.sum(axis=tuple(axis for axis in range(array.ndim) if axis != place.axis))
        roots, places = np.unique(channels.roots(place.channels), return_inverse=True)
        norms = np.sqrt(np.bincount(places, weights=sums))
        mean = norms.mean()
        for root, norm in zip(roots.tolist(), norms.tolist(), strict=True):
            totals[root] += norm / mean if mean else 0.0
            counts[root] += 1
    return {root: totals[root] / counts[root] for root in totals}


def weights_times_gradients(model: Any, data: Any) -> dict[int, list[Any]]:
    """How much the loss would change without each weight, to first order: the weight times its gradient.

    The squares are summed over the batches of `data`; the root of the sum is returned, by the id of the layer.

    Args:
        model: A compiled model, which is not changed.
        data: A pair of arrays (x, y), or an iterable of such pairs.
    """
    if not model.compiled or model.loss is None:
        raise InputError(
            f'importance="gradient" needs a model that is compiled with a loss. Received: {model.name!r}, '
            f"{'without a loss' if model.compiled else 'not compiled'}.",
            hint='model.compile(loss=...) first, or importance="magnitude"',
        )
    batches = [data] if isinstance(data, tuple) else list(data or ())
    if not batches or not all(isinstance(batch, tuple) and len(batch) in (2, 3) for batch in batches):
        raise InputError(
            'importance="gradient" needs `data`: a pair of arrays (x, y), or batches of them. '
            f"Received: {type(data).__name__}.",
            hint="give some batches of the training data, for instance data=(x[:256], y[:256])",
        )
    import keras

    copy = Rebuilt(model, copy_layer)
    copy.copy_weights({})
    copy.model.trainable = True  # the channels of frozen layers matter as well
    products = _make_optimizer()
    compile_like(model, copy.model, **compile_arguments(model) | {"optimizer": products, "metrics": None})
    for batch in batches:
        copy.model.train_on_batch(*batch)
    # In the order of the weights: an optimizer that held them, too, would have JAX donate them twice.
    found = {
        id(weight): np.sqrt(keras.ops.convert_to_numpy(total))
        for weight, total in zip(copy.model.trainable_variables, products.sums, strict=True)
    }
    layers = {key: (old, new) for key, (old, new) in copy.layers.items() if getattr(old, "weights", None)}
    return {
        key: [found.get(id(weight), np.zeros(weight.shape, np.float32)) for weight in new.weights]
        for key, (_, new) in layers.items()
    }


def _make_optimizer() -> Any:
    """An optimizer that changes no weight, and adds up the squares of weights times gradients."""
    import keras

    class Products(keras.optimizers.Optimizer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(learning_rate=0.0, name="products")
            self.sums: list[Any] = []

        def build(self, variables: Any) -> None:
            if not self.built:
                super().build(variables)
                self.sums = [self.add_variable_from_reference(each, name="sum") for each in variables]

        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            total = self.sums[self._get_variable_index(variable)]
            product = keras.ops.multiply(keras.ops.cast(gradient, total.dtype), keras.ops.cast(variable, total.dtype))
            self.assign_add(total, keras.ops.square(product))

    return Products()
