"""How training pictures are varied: what may be drawn, as a value."""

from dataclasses import asdict, dataclass
from typing import Any

from fitroom.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Random changes to training pictures. Each epoch draws anew; what is drawn depends on seed, epoch and picture.

    >>> Augment(rotation=0, colour=0.1).to_dict()
    {'flip': True, 'zoom': 0.2, 'shear': 5.0, 'rotation': 0, 'colour': 0.1}
    """

    flip: bool = True
    """Left and right are swapped in every second picture."""

    zoom: float = 0.2
    """Up to this much larger or smaller; what is larger is cut from a random place."""

    shear: float = 5.0
    """Up to so many degrees."""

    rotation: float = 10.0
    """Up to so many degrees to either side. What comes into view at the border is the picture's own reflection."""

    colour: float = 0.2
    """Brightness, contrast and saturation up to this much stronger or weaker."""

    def __post_init__(self) -> None:
        if not isinstance(self.flip, bool):
            raise InputError(f"`flip` of an Augment must be True or False. Received: {self.flip!r}.")
        for name, most in (("zoom", 0.9), ("shear", 60), ("rotation", 180), ("colour", 0.9)):
            value = getattr(self, name)
            if not 0 <= value <= most:
                raise InputError(f"`{name}` of an Augment must be between 0 and {most}. Received: {value!r}.")

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def augment_of(value: "Augment | bool | None") -> Augment | None:
    """What the argument `augment` says: True is the default Augment."""
    if value is None or isinstance(value, bool):
        return Augment() if value else None
    if not isinstance(value, Augment):
        raise InputError(
            f"`augment` must be True, None or a fitroom.data.Augment. Received: {value!r}.",
            hint="fitroom.data.Augment(rotation=15) changes one thing and keeps the rest",
        )
    return value
