"""What smaller models would save: each change estimated, ordered by saving per risk."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from fitroom.backends.choose import current_backend
from fitroom.cards.catalogue import Card
from fitroom.errors import FitroomError
from fitroom.estimating.estimate import estimate
from fitroom.keras_model.freezing import freeze_temporarily
from fitroom.keras_model.input_batch import symbolic_calls
from fitroom.keras_model.layers import can_be_jitted, precision_of
from fitroom.keras_model.optimizers import SLOTS
from fitroom.lean.variants import RISKS, Variant, find_variants
from fitroom.memory.estimate import Estimate
from fitroom.planning.roofline.step_time import StepTime
from fitroom.remat.graph import functional_of, layer_graph

MOST_ESTIMATES = 8
"""The model as it is, and seven changes; the others are interpolated."""

_FLOAT_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Row:
    """One change, or the model as it is."""

    name: str
    peak_bytes: int
    samples_per_second: float | None
    """Predicted; None where the layers form no graph."""

    parameters: int
    file_bytes: int
    """The weights in float32."""

    is_interpolated: bool = False
    """Whether the peak was computed from the numbers of weights and activations, and not estimated."""

    risk: str | None = None
    how: str | None = None
    knob: str | None = None


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The changes that apply to a model, best first."""

    model: str
    backend: str
    gpu: str
    batch_size: int
    own: Row
    rows: tuple[Row, ...]
    useless: tuple[str, ...] = ()
    """Changes that save neither a hundredth of the memory nor a twentieth of the file."""

    refused: tuple[tuple[str, str], ...] = ()
    """Changes that could not be estimated, with the reason."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {"schema_version": 1} | asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Advice":
        """Read what `to_dict` wrote."""
        fields = {name: value for name, value in data.items() if name != "schema_version"}
        return cls(
            **fields
            | {
                "own": Row(**fields["own"]),
                "rows": tuple(Row(**row) for row in fields["rows"]),
                "useless": tuple(fields["useless"]),
                "refused": tuple((name, reason) for name, reason in fields["refused"]),
            }
        )


def advise(
    text: str,
    model: Any,
    rebuild: Callable[[int], Any] | None,
    *,
    batch_size: int,
    card: Card,
    quick: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Advice:
    """Estimate what each change would do to the training step of a model.

    Args:
        text: What the user typed for the model.
        model: The model, built; values are not needed.
        rebuild: Builds it for another image size; None where that cannot be.
        batch_size: The samples of a step.
        card: The card to estimate for.
        quick: Estimate the model itself alone, and interpolate the rest.
        say: Called with what is being done.
    """
    # Variants are made one by one, so how many there are shows as they come.
    number, total = 1, 1 if quick else MOST_ESTIMATES
    say(f"estimate {number} of at most {total}: {text}")
    found = estimate(model, batch_size, gpu=card)
    own = _Measured(model, found, _count_elements(model), _count_state(model, "adam"))
    base = _row(text, own, own, None, batch_size, card, peak_bytes=found.peak_bytes)
    rows, refused = [], []
    left = 0 if quick else MOST_ESTIMATES - 1
    for variant in find_variants(text, model, rebuild, batch_size):
        try:
            with symbolic_calls():
                changed = variant.model()
            measured = _Measured(
                changed,
                None,
                _count_elements(changed),
                _count_state(changed, variant.recipe.optimizer or "adam", variant),
            )
            peak_bytes = None
            if left:
                number += 1
                say(f"estimate {number} of at most {total}: {variant.name}")
                left -= 1
                peak_bytes = estimate(changed, batch_size, gpu=card, recipe=variant.recipe).peak_bytes
            rows.append(_row(variant.name, own, measured, variant, batch_size, card, peak_bytes=peak_bytes))
        except FitroomError as error:
            refused.append((variant.name, error.message))
    useless = [row.name for row in rows if _saves_nothing(row, base)]
    rows = [row for row in rows if not _saves_nothing(row, base)]
    rows.sort(key=lambda row: (base.peak_bytes - row.peak_bytes) / RISKS[row.risk], reverse=True)  # type: ignore[index]
    return Advice(
        model=text,
        backend=current_backend().name,
        gpu=card.name,
        batch_size=batch_size,
        own=base,
        rows=tuple(rows),
        useless=tuple(useless),
        refused=tuple(refused),
    )


def _saves_nothing(row: Row, own: Row) -> bool:
    return row.peak_bytes > 0.99 * own.peak_bytes and row.file_bytes > 0.95 * own.file_bytes


@dataclass(frozen=True)
class _Measured:
    """A model, what was estimated of it, and what can be counted without an estimate."""

    model: Any
    estimate: Estimate | None
    elements: int
    """Numbers in all outputs of layers, for one sample."""

    state_bytes: int
    """Weights, gradients and slots of the optimizer."""


def _row(
    name: str,
    own: _Measured,
    changed: _Measured,
    variant: Variant | None,
    batch_size: int,
    card: Card,
    *,
    peak_bytes: int | None,
) -> Row:
    parameters = sum(_size(weight.shape) for weight in changed.model.weights)
    return Row(
        name=name,
        peak_bytes=_interpolate(own, changed, variant, batch_size) if peak_bytes is None else peak_bytes,
        samples_per_second=_speed(changed.model, variant, batch_size, card),
        parameters=parameters,
        file_bytes=_FLOAT_BYTES * parameters,
        is_interpolated=peak_bytes is None,
        risk=variant.risk if variant else None,
        how=variant.how if variant else None,
        knob=variant.knob if variant else None,
    )


def _interpolate(own: _Measured, changed: _Measured, variant: Variant | None, batch_size: int) -> int:
    """The peak, if activations shrink as the numbers in the outputs of layers do."""
    assert own.estimate is not None
    activations = max(0, own.estimate.peak_bytes - own.state_bytes)
    share = changed.elements / own.elements
    if variant is not None and variant.recipe.micro_batch:
        share *= variant.recipe.micro_batch / batch_size
    if variant is not None and variant.recipe.frozen_layers:
        share *= 0.5  # half of the layers keep nothing for the backward pass
    return int(changed.state_bytes + share * activations)


def _speed(model: Any, variant: Variant | None, batch_size: int, card: Card) -> float | None:
    recipe = variant.recipe if variant else None
    frozen = recipe.frozen_layers if recipe else None
    with freeze_temporarily(model, frozen) if frozen else symbolic_calls():
        step = StepTime.of_model(model, backend=current_backend().name, card=card)
        if step is None:
            return None
        speed = step.speed(
            batch_size=batch_size,
            micro_batch=(recipe.micro_batch if recipe else None) or batch_size,
            precision=precision_of(model),
            jit=can_be_jitted(model),
        )
    return round(speed.samples_per_second, 1)


def _count_elements(model: Any) -> int:
    graph = layer_graph(model) if functional_of(model) is not None else None
    return sum(_size(tensor.shape[1:]) for tensor in graph.tensors) if graph else 1


def _count_state(model: Any, optimizer: str, variant: Variant | None = None) -> int:
    trained = sum(_size(weight.shape) for weight in model.trainable_variables)
    if variant is not None and variant.recipe.frozen_layers:
        trained //= 2
    everything = sum(_size(weight.shape) for weight in model.weights)
    return _FLOAT_BYTES * (everything + trained * (1 + SLOTS.get(optimizer, 2)))


def _size(shape: Any) -> int:
    size = 1
    for each in shape:
        size *= each or 1
    return size
