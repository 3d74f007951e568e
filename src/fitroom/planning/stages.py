"""Which variants a planner tries, in the order of what they change about the result."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fitroom.cards.catalogue import Card
from fitroom.errors import InputError, ModelError
from fitroom.keras_model.freezing import layers_with_weights, num_frozen
from fitroom.keras_model.jit_choice import jit_choice
from fitroom.keras_model.layers import can_be_jitted
from fitroom.planning.request import AUTO, PlanRequest
from fitroom.planning.variant import FROZEN_SHARES, LEAN_OPTIMIZERS, Variant

_SMALLEST_SHARE = 0.5
"""The smallest image size as a share of the model's own, where it may be changed."""

_PIXELS_STEP = 32


class VariantStages:
    """The variants of one request, and the models that some of them need built anew."""

    def __init__(self, request: PlanRequest, backend: str) -> None:
        from fitroom.keras_model.layers import precision_of

        self._request, self._backend = request, backend
        self._models: dict[int | None, Any] = {None: request.model}
        self._refusals: dict[str, str | None] = {}
        self.own = Variant(
            precision=precision_of(request.model), jit=self._find_own_jit(), input_dtype=request.input_dtype
        )
        """What the user has."""

        self.why_no_smaller: str | None = None
        """Why the model cannot be built for a smaller image size, once that was tried."""

    def list_stages(self, card: Card) -> Iterator[list[Variant]]:
        """Yield the variants of one stage after another: first without changing the task, then with what is allowed."""
        plain = [
            replace(self.own, precision=precision, jit=self._choose_jit(), kernels=self.kernels_in(precision))
            for precision in self._precisions(card)
        ]
        yield plain
        if "optimizer" in self._request.allow:
            yield [replace(variant, optimizer=name) for variant in plain for name in LEAN_OPTIMIZERS]
        optimizers = (None, *LEAN_OPTIMIZERS) if "optimizer" in self._request.allow else (None,)
        leaner = [replace(variant, optimizer=name) for variant in plain for name in optimizers]
        smallest = None
        for smallest in self._smaller_sizes():
            yield [replace(variant, image_size=smallest) for variant in leaner]
        for size in dict.fromkeys((None, smallest)):
            for number in self._frozen_numbers():
                yield [replace(variant, image_size=size, frozen_layers=number) for variant in leaner]

    def model_at(self, image_size: int | None) -> Any:
        """The model for an image size, built once; None for the model itself."""
        if image_size not in self._models:
            assert self._request.rebuild is not None, "only asked for where there is one"
            assert image_size is not None, "the model itself is there from the start"
            self._models[image_size] = self._request.rebuild(image_size)
        return self._models[image_size]

    def jit_notes(self) -> Iterator[str]:
        """Yield a sentence where the user's `compile` call rules out XLA."""
        if self.own.jit is False and jit_choice(self._request.model) is False:
            yield "Not jitted, as the model was compiled; without `jit_compile=False` a plan has it compiled by XLA."

    def precision_notes(self) -> Iterator[str]:
        """Yield a sentence for each precision that was free but could not be tried."""
        yield from filter(None, self._refusals.values())

    def _precisions(self, card: Card) -> list[str]:
        own = self.own.precision
        if self._request.precision is None or "precision" in self._request.keep:
            return [own]
        if self._request.precision != AUTO:
            return [self._request.precision]
        other = choose_precision(card)
        return [own, other] if other != own and self._why_not_in(other) is None else [own]

    def _why_not_in(self, precision: str) -> str | None:
        """Why the model cannot be estimated in another precision; None where it can."""
        from fitroom.keras_model.twin import twin_in_precision

        if precision not in self._refusals:
            try:
                twin_in_precision(self._request.model, precision)
                self._refusals[precision] = None
            except ModelError as error:
                self._refusals[precision] = error.message
        return self._refusals[precision]

    def _find_own_jit(self) -> bool | None:
        """Whether Keras would jit the user's model on the card; None on a backend that leaves no choice."""
        if self._backend != "tensorflow":
            return None
        model = self._request.model
        choice = jit_choice(model)
        # Who keeps it keeps what Keras made of it on this machine: on a CPU "auto" is a step without XLA.
        if choice is None or (model.compiled and "jit" in self._request.keep):
            return bool(model.jit_compile)
        return choice is not False and can_be_jitted(model)

    def _choose_jit(self) -> bool | None:
        """Whether the plan jits the step: as the user chose, or else wherever the model allows it."""
        keeps_it = self.own.jit is None or "jit" in self._request.keep or jit_choice(self._request.model) is False
        return self.own.jit if keeps_it else can_be_jitted(self._request.model)

    def kernels_in(self, precision: str) -> str | None:
        """Which kernels a plan takes in a precision: fused ones, where they were measured to take less of both."""
        from fitroom.backends.choose import current_backend
        from fitroom.backends.fused import takes_fused

        is_kept = "kernels" in self._request.keep
        is_free = not is_kept and takes_fused(current_backend(), self._request.model, precision, jit=self._choose_jit())
        return "fused" if is_free else None

    def _smaller_sizes(self) -> Iterator[int]:
        """Yield smaller image sizes, as far as that is allowed and the model can be built for them."""
        if "image_size" not in self._request.allow:
            return
        own = self._request.model.inputs[0].shape[1] or 0
        sizes = range(own - own % _PIXELS_STEP or own, int(_SMALLEST_SHARE * own) - 1, -_PIXELS_STEP)
        for size in sizes:
            if size < own:
                try:
                    self.model_at(size)
                except InputError as error:  # too small for the model, and so is every smaller size
                    self.why_no_smaller = f"Images of {size} x {size} were allowed, but fail: {error.message}"
                    return
                yield size

    def _frozen_numbers(self) -> list[int]:
        """How many of the first layers may be frozen, the fewest first."""
        if "frozen_layers" not in self._request.allow:
            return []
        own, count = num_frozen(self._request.model), len(layers_with_weights(self._request.model))
        numbers = {min(round(share * count), count - 1) for share in FROZEN_SHARES}
        return sorted(number for number in numbers if number > own)


def choose_precision(card: Card) -> str:
    """Return the dtype policy that a card computes fastest in."""
    if card.bf16_flops:
        return "mixed_bfloat16"
    return "mixed_float16" if card.fp16_flops else "float32"
