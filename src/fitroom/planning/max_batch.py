"""`fitroom.max_batch`: the largest batch that fits whole, with nothing recomputed and with remat."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fitroom.budget import Budget
from fitroom.cards.catalogue import Card
from fitroom.display import TextDisplay
from fitroom.input_sizes import InputShape, known_sizes

if TYPE_CHECKING:
    import keras


@dataclass(frozen=True, kw_only=True)
class MaxBatch(TextDisplay):
    """The largest batches that fit a budget without being split."""

    plain: int
    """The largest with nothing recomputed."""

    with_remat: int
    """The largest with as much recomputed as saves memory."""

    budget: Budget


def max_batch(
    model: "keras.Model",
    *,
    budget: Budget | int | str | None = None,
    gpu: str | Card | None = None,
    precision: str | None = None,
    optimizer: Any = None,
    loss: Any = None,
    input_dtype: str | None = None,
    input_shape: InputShape | None = None,
    say: Callable[[str], None] | None = None,
) -> MaxBatch:
    """Find the largest batch that fits whole, with nothing recomputed and with remat; each is confirmed by an estimate.

    Args:
        model: a built `keras.Model`; a compiled one brings its optimizer and loss.
        budget: "16GiB", bytes or a `Budget`; together with `gpu`, that card capped.
        gpu: the card, by name; with neither, the card in this machine, or else a T4.
        precision: a Keras dtype policy; None keeps the model's.
        optimizer: a Keras optimizer or its name, in place of the model's.
        loss: a Keras loss or its name, in place of the model's.
        input_dtype: the dtype in which batches arrive on the device, such as "uint8".
        input_shape: the shape of one sample for a model that leaves dimensions open, as in `fitroom.estimate`.
        say: called with a line of text before each estimate.

    Example:
        >>> fitroom.max_batch(model, budget="16GiB").plain  # doctest: +SKIP
    """
    from fitroom.backends.choose import current_backend
    from fitroom.keras_model.input_batch import symbolic_calls
    from fitroom.keras_model.layers import precision_of
    from fitroom.planning.largest_batch import LargestBatch  # it brings NumPy
    from fitroom.planning.target import choose_target
    from fitroom.planning.variant import Variant

    target = choose_target(budget, gpu, current_backend().name)
    policy = precision_of(model) if precision in (None, "auto") else str(precision)
    variant = Variant(precision=policy, input_dtype=input_dtype)
    with symbolic_calls(), known_sizes(input_shape):
        search = LargestBatch(model, target, variant, optimizer=optimizer, loss=loss, say=say or (lambda text: None))
        plain = search.plain()
        with_remat = max(plain, search.with_remat())
    if not with_remat:
        raise search.nothing_fits()
    return MaxBatch(plain=plain, with_remat=with_remat, budget=target.budget)
