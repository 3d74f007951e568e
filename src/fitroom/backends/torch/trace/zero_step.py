"""Steps on batches of zeros: what is run on fake tensors to predict memory, and on a card to measure it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from fitroom.backends.torch.trace.borrowed_variables import torch_dtype
from fitroom.backends.torch.trace.state import StateVariable, state_of
from fitroom.backends.torch.trace.symbolic import symbolic_calls
from fitroom.backends.torch.train.stepper import TorchStepper
from fitroom.batch import Batch
from fitroom.keras_model.build import build
from fitroom.keras_model.input_batch import TensorSpec
from fitroom.keras_model.objective import Objective
from fitroom.keras_model.twin import without_values
from fitroom.recipe import Recipe


class Observer:
    """Is told what a step does. This one ignores it; a recording one derives from it."""

    def input_came(self, tensor: Any) -> None:
        """A tensor of the batch is on the device."""

    def micro_batch_begins(self) -> None:
        """The forward pass of a micro-batch is next."""

    def gradients_are_ready(self, weights: Sequence[Any]) -> None:
        """The update is next."""


@dataclass(frozen=True, kw_only=True)
class TorchStep:
    """A step as Keras runs it on PyTorch: a function of one batch."""

    model: Any
    function: Callable[[Any], Any]
    specs: Any
    """The batch, as Keras hands it to the step, with a TensorSpec for each array."""

    training: bool
    least_runs: int = 3
    """How many make it steady: gradients, metrics and logs of one are still held in the next."""

    @property
    def state(self) -> list[StateVariable]:
        """The variables that are on the device meanwhile."""
        return state_of(self.model, training=self.training)

    def batch(self, device: str, observer: Observer) -> Any:
        """A batch as `fit` and `predict` take it from arrays: copied to the device before the step."""
        # Not `keras.tree`, which leaves references behind.
        return torch.utils._pytree.tree_map(lambda spec: _zeros(spec, device, observer), self.specs)


@dataclass(frozen=True, kw_only=True)
class MicroBatchStep(TorchStep):
    """A step as fitroom runs it in micro-batches, each of which is copied to the device when its turn comes."""

    sizes: tuple[int, ...]
    recipe: Recipe

    def batch(self, device: str, observer: Observer) -> Any:
        """How the micro-batches are copied: on the device there is nothing yet."""

        def put(part: Batch) -> Batch:
            observer.micro_batch_begins()
            return part.map(lambda spec: _zeros(spec, device, observer))

        return _ObservedStepper(self.model, put, observer, self.recipe)

    def check(self) -> None:
        """Make the variables that a first batch would make. Raises ModelError where micro-batches are impossible."""
        # A twin in another precision has no values, and Keras would count on them.
        with without_values(), symbolic_calls():
            build(self.model, self.micro_batches()[0])
        Objective(self.model).check_can_cut("train_step")

    def micro_batches(self) -> list[Batch]:
        """The micro-batches, as structures of TensorSpec."""
        x, y = self.specs
        return [Batch(x=x, y=y).map(partial(_resized, size=size)) for size in self.sizes]


class _ObservedStepper(TorchStepper):
    def __init__(self, model: Any, put: Callable[[Batch], Batch], observer: Observer, recipe: Recipe) -> None:
        super().__init__(
            model,
            put=put,
            remat=recipe.remat,
            kernels=recipe.kernels,
            attention_dropout=recipe.attention_dropout,
        )
        self.objective.assume_losses()
        self._observer = observer

    def _gradients(self, weights: Sequence[Any]) -> list[Any]:
        self._observer.gradients_are_ready(weights)
        return super()._gradients(weights)


def micro_batch_step(model: Any, specs: tuple[Any, ...], sizes: Sequence[int], recipe: Recipe) -> MicroBatchStep:
    """The step in micro-batches of these sizes. Three are enough: from the second on they are alike."""
    step = MicroBatchStep(
        model=model,
        function=lambda stepper: None,
        specs=specs,
        training=True,
        least_runs=2,
        sizes=tuple(sizes[:3]),
        recipe=recipe,
    )
    micro_batches = step.micro_batches()
    return replace(step, function=lambda stepper: stepper.train_micro_batches(micro_batches))


def _zeros(spec: TensorSpec, device: str, observer: Observer) -> Any:
    tensor = torch.zeros(spec.shape, dtype=torch_dtype(spec.dtype), device=device)
    observer.input_came(tensor)
    return tensor


def _resized(spec: TensorSpec, *, size: int) -> TensorSpec:
    return replace(spec, shape=(size, *spec.shape[1:]))
