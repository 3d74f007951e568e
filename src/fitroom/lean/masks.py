"""Unstructured pruning: the smallest weights are set to zero while a model trains, and held there."""

import warnings
from typing import Any

import keras
import numpy as np

from fitroom.errors import InputError, ModelError
from fitroom.lean.schedule import PolynomialSchedule

NO_SAVING = (
    "Weights at zero save neither memory nor time, in training or after it: only the compressed file gets smaller."
)


class MagnitudePruning(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback that sets the smallest weights of every kernel to zero after each update, more of them as it goes.

    Kernels of convolutions and Dense layers count; biases, normalisations and depthwise kernels, which hold few
    weights, do not. The masks are part of a checkpoint of `fitroom.fit`, and a killed run resumes with the same ones.
    Loaded from any other checkpoint, the weights that are zero stay zero. List it before callbacks that save the model.
    """

    def __init__(self, sparsity: float, *, schedule: PolynomialSchedule | None = None) -> None:
        super().__init__()
        if schedule is not None and not isinstance(schedule, PolynomialSchedule):
            raise InputError(
                f"`schedule` must be a fitroom.lean.PolynomialSchedule. Received: {type(schedule).__name__}.",
                hint="fitroom.lean.PolynomialSchedule(end=3 * steps_per_epoch)",
            )
        self.target = sparsity
        self.schedule = schedule
        self._masks: list[Any] | None = None
        """True where a weight is kept, for each kernel; None before training begins."""

        self._on_device: list[Any] | None = None
        self._begun_at: int | None = None
        """The updates that the optimizer had made before: a schedule counts from there."""

        self._told = False
        self._last = 0
        """The updates after which it was last looked whether a choice is due."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Before the first batch: choose what is zero from the start."""
        updates = self._updates()
        if self._begun_at is None or updates < self._begun_at:  # at first, or compiled anew
            self._begun_at, self._last = updates, 0
        if self._masks is None:
            self._choose(self._sparsity_at(updates - self._begun_at))
            self._apply()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Choose anew where that is due, and set weights that the update has changed to zero again."""
        step = self._updates() - (self._begun_at or 0)
        if self.schedule is not None and self.schedule.is_due(step, self._last):
            self._choose(self._sparsity_at(step))
        self._last = step
        self._apply()

    def on_train_end(self, logs: Any = None) -> None:
        """Set weights to zero again that an average of weights has put in place; say so if the schedule did not end."""
        if self._masks is None:
            return
        self._apply()
        if self.schedule is not None and self._last < self.schedule.end and not self._told:
            self._told = True
            warnings.warn(
                f"Training ended after {self._last} updates at a sparsity of {self.sparsity():.2f}: the schedule "
                f"reaches {self.target} at update {self.schedule.end}. Train on with the same callback, or give a "
                "smaller `end`.",
                stacklevel=2,
            )

    def sparsity(self, model: Any = None) -> float:
        """The share of weights at zero in the kernels that are pruned."""
        kernels = [_to_numpy(kernel) for kernel in prunable_kernels(model or self.model)]
        zeros = sum(int((each == 0).sum()) for each in kernels)
        return zeros / sum(int(each.size) for each in kernels)

    def get_state(self) -> dict[str, Any]:
        """The masks, for a checkpoint."""
        masks = self._masks or []
        return {
            "shapes": [list(mask.shape) for mask in masks],
            "bits": [np.packbits(mask) for mask in masks],
            "begun_at": self._begun_at,
            "last": self._last,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue with the masks of a checkpoint."""
        self._on_device = None
        self._begun_at, self._last = state["begun_at"], state["last"]
        self._masks = [
            np.unpackbits(np.asarray(bits, np.uint8), count=int(np.prod(shape))).astype(bool).reshape(shape)
            for shape, bits in zip(state["shapes"], state["bits"], strict=True)
        ] or None

    def _updates(self) -> int:
        """How many updates the optimizer has made."""
        return int(_to_numpy(self.model.optimizer.iterations))

    def _sparsity_at(self, step: int) -> float:
        return self.schedule.sparsity_at(step, self.target) if self.schedule else self.target

    def _choose(self, sparsity: float) -> None:
        """Mask the smallest weights of each kernel, and all that are masked already."""
        values = [np.abs(_to_numpy(kernel)) for kernel in prunable_kernels(self.model)]
        if not values:
            raise ModelError(
                f"The model {self.model.name!r} has no kernels that can be pruned.",
                hint="unstructured pruning is for models with convolutions or Dense layers",
            )
        before = self._masks
        if before is None and self._updates() > 0:  # a model that was pruned before keeps its zeros
            before = [each != 0 for each in values]
        self._masks, self._on_device = [_mask(each, sparsity) for each in values], None
        if before is not None:
            self._masks = [mask & old for mask, old in zip(self._masks, before, strict=True)]

    def _apply(self) -> None:
        kernels = prunable_kernels(self.model)
        masks = self._masks or []
        if [tuple(mask.shape) for mask in masks] != [tuple(kernel.shape) for kernel in kernels]:
            raise InputError(
                f"The masks of a checkpoint are for {len(masks)} kernels of other shapes than the {len(kernels)} of "
                f"the model {self.model.name!r}.",
                hint="resume with the model that the run was started with",
            )
        if self._on_device is None:
            self._on_device = [
                keras.ops.convert_to_tensor(mask, dtype=kernel.dtype)
                for mask, kernel in zip(masks, kernels, strict=True)
            ]
        for kernel, mask in zip(kernels, self._on_device, strict=True):
            kernel.assign(keras.ops.stop_gradient(keras.ops.multiply(kernel.value, mask)))


def prunable_kernels(model: Any) -> list[Any]:
    """The kernels of a model that unstructured pruning sets to zero, in a fixed order."""
    found = []
    for variable in model.trainable_variables:
        is_kernel = variable.name.endswith("kernel") and len(variable.shape) >= 2
        if is_kernel and "depthwise" not in variable.name and not _is_depthwise(variable.shape):
            found.append(variable)
    return found


def _is_depthwise(shape: Any) -> bool:
    """Whether a kernel is depthwise: (rows, columns, channels, 1), or in groups (rows, columns, 1, channels)."""
    return len(shape) > 3 and 1 in tuple(shape[-2:])


def _mask(magnitudes: Any, sparsity: float) -> Any:
    """False for the smallest values, exactly as many as the sparsity says; the first of equal ones."""
    flat = magnitudes.reshape(-1)
    count = round(sparsity * flat.size)
    if not count:
        return np.ones(magnitudes.shape, bool)
    border = np.partition(flat, count - 1)[count - 1]
    mask = flat > border
    equal = np.flatnonzero(flat == border)
    mask[equal[count - int((flat < border).sum()) :]] = True
    return mask.reshape(magnitudes.shape)


def _to_numpy(value: Any) -> Any:
    return keras.ops.convert_to_numpy(value)
