"""A model that computes parts of itself again in the backward pass, for the time of a step.

The model stays the user's own: the same layers, variables, names, the same saved file. While a step runs, or is traced
and compiled, its `call` on the instance is another one; after it, it is as it was.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from fitroom.keras_model.held_layers import HeldLayers
from fitroom.keras_model.segment import Recomputed
from fitroom.keras_model.segment import SegmentVariables as SegmentVariables
from fitroom.keras_model.segmented_call import SegmentedCall
from fitroom.recipe import Remat
from fitroom.remat.chooser import SegmentChooser
from fitroom.remat.graph import functional_of
from fitroom.remat.shapes import num_bytes

Step = Callable[..., Any]


class Rematerialisation:
    """What `Recipe(remat=...)` asks for, carried out on one model with a backend's `recomputed`.

    >>> rematerialisation = Rematerialisation(model, "blocks", recomputed)  # doctest: +SKIP
    >>> with rematerialisation.during(num_samples=32):  # doctest: +SKIP
    ...     model.train_on_batch(x, y)
    """

    def __init__(self, model: Any, remat: str | Remat | None, recomputed: Recomputed) -> None:
        self._model, self._recomputed = model, recomputed
        self.remat = None if remat == "none" else remat
        self._chooser: SegmentChooser | None = None
        self._calls: dict[int, SegmentedCall | HeldLayers] = {}

    def during(self, num_samples: int) -> AbstractContextManager[None]:
        """For the time of the block the model runs in segments whenever it is called in training.

        `num_samples` is how many samples are on the device at once: segments chosen for a budget depend on it.
        """
        if self.remat is None:
            return nullcontext()
        if num_samples not in self._calls:
            self._calls[num_samples] = self._call(num_samples)
        return self._calls[num_samples].installed()

    def _call(self, num_samples: int) -> SegmentedCall | HeldLayers:
        if self.remat == "blocks" and functional_of(self._model) is None:
            return HeldLayers(self._model, self._recomputed)
        self._chooser = self._chooser or SegmentChooser.of_model(self._model)
        segmentation = self._chooser.choose(self.remat or "none", num_samples, resident_bytes(self._model, num_samples))
        return SegmentedCall(self._model, self._chooser.graph, segmentation.segments, self._recomputed)

    def of_step(self, step: Step, num_samples: int) -> Step:
        """A step that does what `step` does, with the model running in segments.

        It is another function: what a framework remembers of `step` is not of it.
        """
        if self.remat is None:
            return step

        def in_segments(*arguments: Any) -> Any:
            with self.during(num_samples):
                return step(*arguments)

        return in_segments


def resident_bytes(model: Any, num_samples: int) -> int:
    """What is there through a whole training step: variables, gradients, the optimizer's, the batch."""
    held = [*model.variables, *model.metrics_variables, *model.trainable_variables]
    # Adam keeps two numbers for each weight; it is what a model that nobody compiled is taken to be trained with.
    held += model.optimizer.variables if model.compiled and model.optimizer else 2 * model.trainable_variables
    tensors = getattr(model, "inputs", None) or ()  # a subclassed model may know none
    inputs = sum(num_bytes((num_samples, *tensor.shape[1:]), tensor.dtype) for tensor in tensors)
    return inputs + sum(num_bytes(variable.shape, variable.dtype) for variable in held)
