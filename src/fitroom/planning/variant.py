"""What a recipe is besides its micro-batch and its segments: memory grows along one line for each."""

from dataclasses import dataclass

from fitroom.planning.option import Change
from fitroom.recipe import EFFECTS, PRECISIONS, Recipe


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
