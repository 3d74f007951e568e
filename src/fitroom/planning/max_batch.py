"""`fitroom.max_batch`: the largest batch that fits whole, with nothing recomputed and with as much as possible."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fitroom.budget import Budget
from fitroom.display import TextDisplay
from fitroom.estimating.cards import Card
from fitroom.input_sizes import InputShape, known_sizes

if TYPE_CHECKING:
    import keras


@dataclass(frozen=True, kw_only=True)
class MaxBatch(TextDisplay):
    """The largest batches that train whole in a budget."""

    plain: int
    """With nothing recomputed."""

    with_remat: int
    """With as much recomputed as saves memory."""

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
    """The largest whole batch, plain and with recomputing; each is estimated at its size.

    >>> fitroom.max_batch(model, budget="16GiB").plain  # doctest: +SKIP
    """
    from fitroom.backends.choose import current_backend
    from fitroom.backends.keras_layers import precision_of
    from fitroom.backends.keras_symbolic import symbolic_calls
    from fitroom.planning.largest_batch import LargestBatch
    from fitroom.planning.room import room_of
    from fitroom.planning.variant import Variant

    room = room_of(budget, gpu, current_backend().name)
    policy = precision_of(model) if precision in (None, "auto") else str(precision)
    variant = Variant(precision=policy, input_dtype=input_dtype)
    with symbolic_calls(), known_sizes(input_shape):
        search = LargestBatch(model, room, variant, optimizer=optimizer, loss=loss, say=say or (lambda text: None))
        plain = search.plain()
        with_remat = max(plain, search.with_remat())
    if not with_remat:
        raise search.nothing_fits()
    return MaxBatch(plain=plain, with_remat=with_remat, budget=room.budget)
