"""`fitroom.lean.prune`: removes channels, or sets single weights to zero."""

from collections.abc import Iterable
from numbers import Real
from typing import Any

from fitroom.errors import InputError, UnknownNameError
from fitroom.lean.schedule import PolynomialSchedule

MAGNITUDE, GRADIENT = "magnitude", "gradient"
IMPORTANCES = (MAGNITUDE, GRADIENT)


def prune(
    model: Any,
    sparsity: float,
    *,
    structured: bool = True,
    importance: str = MAGNITUDE,
    data: Any = None,
    keep: Iterable[str] = (),
    schedule: PolynomialSchedule | None = None,
) -> Any:
    """Make a model smaller by removing what matters least.

    Structured pruning returns a new model with fewer channels, which takes less memory to train and to run. Layers that
    must agree (around residual sums, depthwise convolutions, squeeze-and-excite paths) lose the same channels. It loses
    accuracy until it is trained again.

    Unstructured pruning (`structured=False`) returns a Keras callback for `fit` that sets the smallest weights of the
    model to zero while it trains, and holds them there. The model keeps its size in memory and its speed; only its
    compressed file gets smaller.

    Args:
        model: A built Functional or Sequential model. Structured pruning does not change it.
        sparsity: Structured: the share of channels to remove in each group of layers that must agree. At 0.5 a
            convolution between two pruned layers keeps a quarter of its weights. Unstructured: the share of weights.
        structured: Whether whole channels are removed.
        importance: `"magnitude"`, the norm of the weights; or `"gradient"`, weight times gradient on `data`.
        data: For `"gradient"`: arrays (x, y), or batches of them.
        keep: Names of layers, or one name, whose channels stay.
        schedule: Unstructured: a `PolynomialSchedule`; by default all weights are set to zero at once, at the start.

    >>> import keras
    >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(6, "relu"), keras.layers.Dense(2)])
    >>> [layer.units for layer in prune(model, 0.5).layers]
    [3, 2]
    """
    if not isinstance(sparsity, Real) or isinstance(sparsity, bool) or not 0 <= sparsity < 1:
        raise InputError(
            f"`sparsity` must be a number from 0 to below 1. Received: sparsity={sparsity!r}.",
            hint="0.5 removes half of the channels",
        )
    if importance not in IMPORTANCES:
        raise UnknownNameError("importance", str(importance), IMPORTANCES, more=f"known are: {', '.join(IMPORTANCES)}")
    if structured:
        from fitroom.lean.structured import remove_channels

        if schedule is not None:
            raise InputError(
                "`schedule` is for unstructured pruning: channels are removed at once. Received: structured=True.",
                hint="leave `schedule` away, or set structured=False",
            )
        return remove_channels(model, float(sparsity), by_gradient=importance == GRADIENT, data=data, keep=keep)
    if importance == GRADIENT or data is not None or tuple(keep):
        raise InputError(
            "Unstructured pruning ranks weights by magnitude in all kernels: `importance`, `data` and `keep` are for "
            "structured pruning.",
            hint="leave them away, or set structured=True",
        )
    from fitroom.lean.masks import MagnitudePruning

    return MagnitudePruning(float(sparsity), schedule=schedule)
