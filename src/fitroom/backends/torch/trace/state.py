"""The variables that a Keras step on PyTorch reads and assigns."""

from dataclasses import dataclass
from typing import Any

from fitroom.keras_model.layers import owners_of_slots, owners_of_variables
from fitroom.keras_model.optimizers import extra_optimizers
from fitroom.memory.timeline import Kind


@dataclass(frozen=True, kw_only=True, slots=True)
class StateVariable:
    """A variable that is on the device all the time."""

    variable: Any
    kind: Kind
    layer: str | None
    """The path of the layer it belongs to; a slot belongs to the layer of its weight."""


def state_of(model: Any, *, training: bool) -> list[StateVariable]:
    """Weights, then the optimizer's variables, then those of metrics: in the order in which they are made."""
    owners = owners_of_variables(model)
    groups: list[tuple[Kind, Any]] = [("weights", model.variables)]
    if training:
        owners |= owners_of_slots(model, owners)
        groups += [("optimizer", optimizer.variables) for optimizer in (model.optimizer, *extra_optimizers(model))]
        groups += [("other", model.metrics_variables)]
    found: dict[int, StateVariable] = {}
    for kind, group in groups:
        for variable in group:
            each = StateVariable(variable=variable, kind=kind, layer=owners.get(id(variable)))
            found.setdefault(id(variable), each)
    return list(found.values())
