"""What was changed in a model, to be asked for later: the new model itself stays plain Keras."""

import weakref
from dataclasses import dataclass
from typing import Any

from fitroom.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Group:
    """Layers that must agree on their channels, as around a residual sum."""

    layers: tuple[str, ...]
    """The names of the layers that make the channels."""

    channels: int
    """How many channels there are; those that are joined count once."""

    kept: int
    pinned: int = 0
    """How many of them may not be removed."""

    reason: str | None = None
    """Why not, for the first of them."""


@dataclass(frozen=True, kw_only=True)
class LayerChange:
    """One layer that was changed, or that could not be."""

    layer: str
    error: float | None = None
    """How far the new kernel is from the old one, as a share of its norm."""

    reason: str | None = None
    """Why the layer was left as it is."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What a function of `fitroom.lean` did to a model."""

    groups: tuple[Group, ...] = ()
    """Layers that must agree on their channels, with the channels that they had and have."""

    changed: tuple[LayerChange, ...] = ()
    unchanged: tuple[LayerChange, ...] = ()
    """Layers that could not be changed, with the reason."""


_KNOWN: "weakref.WeakKeyDictionary[Any, Changes]" = weakref.WeakKeyDictionary()


def remember_changes(model: Any, changes: Changes) -> None:
    """Keep what was changed for as long as the model lives."""
    _KNOWN[model] = changes


def changes(model: Any) -> Changes:
    """What `prune`, `separable` or `adapt` did to make this model.

    Args:
        model: A model that one of these functions returned, in this process.
    """
    found = _KNOWN.get(model)
    if found is None:
        raise InputError(
            f"Nothing is known of how the model {getattr(model, 'name', model)!r} was made.",
            hint="give the model that fitroom.lean.prune, separable or adapt returned; a file does not keep it",
        )
    return found
