"""`fitroom.plan`: finds the fastest recipe that fits a budget."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fitroom.backends.quiet import quiet_tensorflow_imports
from fitroom.budget import Budget
from fitroom.cards.catalogue import Card
from fitroom.errors import InputError
from fitroom.estimating.estimate import check_batch_size
from fitroom.input_sizes import InputShape, known_sizes
from fitroom.keras_model.private import skip_tensorflow_types
from fitroom.planning.request import ALLOWABLE, KEEPABLE, PlanRequest, parse_knobs
from fitroom.planning.result import Plan
from fitroom.units import format_bytes

if TYPE_CHECKING:
    import keras

MAX = "max"
"""In place of a batch size: the largest batch that fits whole."""


@quiet_tensorflow_imports()
@skip_tensorflow_types()
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
    """Find the fastest recipe to train `model` with this batch in this budget.

    The plan may choose the micro-batch, the remat segments and, on TensorFlow, `jit_compile`. The batch that the
    optimizer sees never changes. The memory of the chosen recipe is estimated at its real size.

    Args:
        model: a built `keras.Model`; a compiled one brings its optimizer and loss.
        batch_size: samples per optimizer step; "max" for the largest that fits whole.
        budget: "16GiB", bytes or a `Budget`; together with `gpu`, that card capped.
        gpu: the card, by name; with neither, the card in this machine, or else a T4.
        precision: a Keras dtype policy; "auto" lets the plan choose one that the card computes well; None keeps the
            model's.
        keep: knobs that stay as the model has them: "precision", "kernels", "remat", "micro-batch", "jit".
        allow: knobs that may change the task where nothing else fits: "optimizer", "image-size", "frozen-layers".
        prefer: for a model with BatchNormalization. "whole batches" takes no micro-batch below 16 samples where 16 or
            more fit; "speed" takes the fastest recipe, however small its micro-batch.
        optimizer: a Keras optimizer or its name, in place of the model's.
        loss: a Keras loss or its name, in place of the model's.
        input_dtype: the dtype in which batches arrive on the device, such as "uint8".
        input_shape: the shape of one sample for a model that leaves dimensions open, as in `fitroom.estimate`.
        micro_batch: the largest micro-batch, where you have decided on one.
        rebuild: a function that returns the model for another image size; `allow="image-size"` needs it.
        probe: measure the speed of the best few recipes on the card in this machine instead of predicting it.
        say: called with a line of text before each estimate.

    Example:
        >>> plan = fitroom.plan(model, batch_size=256, budget="16GiB")  # doctest: +SKIP
        >>> print(plan)  # doctest: +SKIP
        >>> fitroom.fit(model, x, y, batch_size=256, plan=plan)  # doctest: +SKIP
    """
    from fitroom.backends.choose import current_backend
    from fitroom.keras_model.input_batch import symbolic_calls
    from fitroom.planning.planner import Planner
    from fitroom.planning.target import choose_target

    target = choose_target(budget, gpu, current_backend().name)
    say = say or _ignore
    kept = parse_knobs("keep", keep, KEEPABLE)
    notes: tuple[str, ...] = ()
    if batch_size == MAX:
        from fitroom.planning.max_batch import max_batch

        largest = max_batch(
            model,
            budget=target.budget,
            gpu=target.card,
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
                f"Not even one sample fits into {format_bytes(target.budget.bytes)} with nothing recomputed.",
                hint=f'without `keep="remat"` a batch of {largest.with_remat} fits',
            )
        kept |= {"micro_batch"}
        notes = (
            f"The largest batch that fits whole is {largest.plain} with nothing recomputed, and {largest.with_remat} "
            "with as much recomputed as saves memory.",
        )
    request = PlanRequest(
        model=model,
        batch_size=check_batch_size(batch_size),
        precision=precision,
        keep=kept,
        allow=parse_knobs("allow", allow, ALLOWABLE),
        prefer=prefer,
        optimizer=optimizer,
        loss=loss,
        input_dtype=input_dtype,
        micro_batch=micro_batch,
        rebuild=rebuild,
    )
    with symbolic_calls(), known_sizes(input_shape):
        found = Planner(request, target, say).plan(probe=probe)
    return replace(found, notes=(*notes, *found.notes))


def _ignore(text: str) -> None:
    """Take a line of text and show it nowhere."""
