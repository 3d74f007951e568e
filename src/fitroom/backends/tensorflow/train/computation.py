"""How a model computes during a step: which segments are recomputed, which layers fused operations serve."""

from collections.abc import Callable
from typing import Any

from fitroom.backends.tensorflow.kernels.serve import FusedKernels
from fitroom.backends.tensorflow.train.recompute import recompute_segment
from fitroom.keras_model.recompute import Rematerialisation
from fitroom.recipe import Remat


class Computation:
    """Has a model compute as a recipe says while a step is traced. The model stays the user's own."""

    def __init__(self, model: Any, *, remat: str | Remat | None, kernels: str | None) -> None:
        self._model, self._is_fused = model, kernels == "fused"
        self._rematerialisation = Rematerialisation(model, remat, recompute_segment)

    def of_step(self, step: Callable[..., Any], num_samples: int) -> Callable[..., Any]:
        """A step that does what `step` does, with the model computing so. `num_samples` is the micro-batch."""
        in_segments = self._rematerialisation.of_step(step, num_samples)
        if not self._is_fused:
            return in_segments

        def fused(*arguments: Any) -> Any:
            with FusedKernels(self._model).during():  # found anew: it is traced once, when the model is built
                return in_segments(*arguments)

        return fused
