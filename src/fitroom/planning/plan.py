"""`fitroom.plan`: the fastest recipe that fits."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fitroom.backends.quiet import quiet_tensorflow_imports
from fitroom.budget import Budget
from fitroom.cards.catalogue import Card
from fitroom.errors import InputError
from fitroom.estimating.estimate import whole_number
from fitroom.input_sizes import InputShape, known_sizes
from fitroom.planning.result import Plan
from fitroom.planning.variant import ALLOWABLE, KEEPABLE, knobs_of
from fitroom.units import format_bytes

if TYPE_CHECKING:
    import keras

MAX = "max"
"""In place of a batch size: the largest that fits whole."""


@quiet_tensorflow_imports()
def plan(
    model: "keras.Model",
    batch_size: int | str = 32,
    *,
    budget: Budget | int | str | None = None,
    gpu: str | Card | None = None,
    precision: str | None = None,
    keep: str | Iterable[str] = (),
    allow: str | Iterable[str] = (),
    prefer: str = "whole batches",
    optimizer: Any = None,
    loss: Any = None,
    input_dtype: str | None = None,
    input_shape: InputShape | None = None,
    micro_batch: int | None = None,
    rebuild: Callable[[int], Any] | None = None,
    probe: bool = False,
    say: Callable[[str], None] | None = None,
) -> Plan:
    """The fastest way to train `model` with this batch in this memory.

    What may be turned is the micro-batch, what is recomputed, and `jit_compile` on TensorFlow; the batch that the
    optimizer sees never changes. The chosen recipe's memory is estimated at its real size.

    Args:
        model: a built `keras.Model`; a compiled one brings its optimizer and loss.
        batch_size: samples per optimizer step; "max" for the largest that fits whole.
        budget: "16GiB", bytes or a `Budget`; together with `gpu`, that card capped.
        gpu: the card, by name; with neither, the card in this machine, or else a T4.
        precision: a Keras dtype policy; "auto" frees it to what the card does well; None keeps the model's.
        keep: knobs that stay as the model has them: "precision", "remat", "micro-batch", "jit".
        allow: knobs that may change the task where nothing else fits: "optimizer", "image-size", "frozen-layers".
        prefer: "speed" takes micro-batches below 16 samples also where BatchNormalization would rather have more.
        optimizer: a Keras optimizer or its name, in place of the model's.
        loss: a Keras loss or its name, in place of the model's.
        input_dtype: the dtype in which batches arrive on the device, such as "uint8".
        input_shape: the shape of one sample for a model that leaves dimensions open, as in `fitroom.estimate`.
        micro_batch: the most samples at once, where that is settled.
        rebuild: gives the model at another image size; "image-size" needs it.
        probe: time the best few on the card in this machine, in place of the speed model.
        say: hears what is under way.

    Example:
        >>> plan = fitroom.plan(model, batch_size=256, budget="16GiB")  # doctest: +SKIP
        >>> print(plan)  # doctest: +SKIP
        >>> fitroom.fit(model, x, y, batch_size=256, plan=plan)  # doctest: +SKIP
    """
    from fitroom.backends.choose import current_backend
    from fitroom.keras_model.input_batch import symbolic_calls
    from fitroom.planning.planner import Planner, Question
    from fitroom.planning.room import room_of

    room = room_of(budget, gpu, current_backend().name)
    say = say or _nobody
    kept = knobs_of("keep", keep, KEEPABLE)
    notes: tuple[str, ...] = ()
    if batch_size == MAX:
        from fitroom.planning.max_batch import max_batch

        largest = max_batch(
            model,
            budget=room.budget,
            gpu=room.card,
            precision=precision,
            optimizer=optimizer,
            loss=loss,
            input_dtype=input_dtype,
            input_shape=input_shape,
            say=say,
        )
        batch_size = largest.plain if "remat" in kept else largest.with_remat
        if not batch_size:
            raise InputError(
                f"Not even one sample fits into {format_bytes(room.budget.bytes)} with nothing recomputed.",
                hint=f"without `keep` of remat a batch of {largest.with_remat} fits",
            )
        kept |= {"micro_batch"}
        notes = (
            f"The largest batch that fits whole is {largest.plain} with nothing recomputed, and {largest.with_remat} "
            "with as much as saves memory.",
        )
    question = Question(
        model=model,
        batch_size=whole_number(batch_size),
        precision=precision,
        keep=kept,
        allow=knobs_of("allow", allow, ALLOWABLE),
        prefer=prefer,
        optimizer=optimizer,
        loss=loss,
        input_dtype=input_dtype,
        micro_batch=micro_batch,
        rebuild=rebuild,
    )
    with symbolic_calls(), known_sizes(input_shape):
        found = Planner(question, room, say).plan(probe=probe)
    return replace(found, notes=(*notes, *found.notes))


def _nobody(text: str) -> None:
    """Nobody hears."""
