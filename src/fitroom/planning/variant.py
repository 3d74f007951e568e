"""The knobs a planner may turn: which are free, which must be allowed, and what each changes about the result."""

from collections.abc import Iterable
from dataclasses import dataclass

from fitroom.errors import InputError, UnknownNameError
from fitroom.planning.option import Change
from fitroom.recipe import EFFECTS, PRECISIONS, Recipe

KEEPABLE = ("precision", "remat", "micro-batch", "jit")
"""What `keep` may name: these stay as the model has them."""

ALLOWABLE = ("image-size", "optimizer", "frozen-layers")
"""What `allow` may name: these are never turned unasked, and no further than memory wants it."""

LEAN_OPTIMIZERS = ("adafactor", "lion", "sgd")
"""What `allow="optimizer"` tries, by how little the training differs from Adam's; each has fewer slots."""

FROZEN_PARTS = (0.25, 0.5, 0.75, 1.0)
"""Of the layers with weights, which `allow="frozen-layers"` leaves untrained from the first on; the last one is always
trained."""


def knobs_of(option: str, named: str | Iterable[str], known: tuple[str, ...]) -> frozenset[str]:
    """The knobs that `keep` or `allow` names, as fields of `Recipe` are called.

    >>> sorted(knobs_of("keep", "precision,micro-batch", KEEPABLE))
    ['micro_batch', 'precision']
    """
    words = named.split(",") if isinstance(named, str) else list(named)
    found = set()
    for word in words:
        if not isinstance(word, str):
            raise InputError(f"`{option}` takes names of knobs. Received: {word!r}.", hint=f"known are: {known}")
        name = word.strip().lower().replace("_", "-")
        if name not in known:
            raise UnknownNameError(f"knob for `{option}`", word, known, more=f"known are: {', '.join(known)}")
        found.add(name.replace("-", "_"))
    return frozenset(found)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to compute a step."""

    precision: str
    jit: bool | None = None
    """None where there is no choice."""

    input_dtype: str | None = None
    optimizer: str | None = None
    """None for the model's own; likewise below."""

    image_size: int | None = None
    frozen_layers: int | None = None

    @property
    def words(self) -> str:
        """For people who wait: the precision, and what changes the task.

        >>> Variant(precision="float32", image_size=224, frozen_layers=9).words
        'float32, 224 pixels, 9 layers frozen'
        """
        pixels = f"{self.image_size} pixels" if self.image_size else None
        frozen = f"{self.frozen_layers} layers frozen" if self.frozen_layers else None
        return ", ".join(filter(None, (self.precision, self.optimizer, pixels, frozen)))

    def recipe(self, *, micro_batch: int | None, remat: object) -> Recipe:
        """With the rest of the knobs."""
        return Recipe(
            precision=self.precision if self.precision in PRECISIONS else None,  # else it is the model's own
            jit=self.jit,
            input_dtype=self.input_dtype,
            optimizer=self.optimizer,
            image_size=self.image_size,
            frozen_layers=self.frozen_layers,
            micro_batch=micro_batch,
            remat=remat,  # type: ignore[arg-type]
        )

    def changes_from(self, own: "Variant") -> tuple[Change, ...]:
        """What differs from the user's own way."""
        differing = (
            (knob, getattr(own, knob), getattr(self, knob))
            for knob in ("jit", "input_dtype", "precision", "optimizer", "image_size", "frozen_layers")
        )
        return tuple(
            Change(knob=knob, before=_said(knob, before), after=_said(knob, after), effect=EFFECTS[knob])
            for knob, before, after in differing
            if after is not None and before != after
        )


def _said(knob: str, value: object) -> str:
    if knob == "frozen_layers" and value:
        return f"the first {value} not trained"
    return {None: "the model's own", True: "compiled whole", False: "not compiled"}.get(value, str(value))  # type: ignore[call-overload,no-any-return]
