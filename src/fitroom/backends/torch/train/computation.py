"""How a model computes during a step: which segments are recomputed, which layers fused operations serve."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fitroom.backends.torch.kernels.serve import FusedKernels
from fitroom.backends.torch.train.recompute import bind_recompute
from fitroom.keras_model.recompute import Rematerialisation
from fitroom.recipe import Remat


class Computation:
    """Has a model compute as a recipe says for the time of a block. The model stays the user's own."""

    def __init__(self, model: Any, *, remat: str | Remat | None, kernels: str | None) -> None:
        self._model, self._remat, self._kernels = model, remat, kernels
        self._fused: FusedKernels | None = None
        self._rematerialisation: Rematerialisation | None = None

    @contextmanager
    def during(self, num_samples: int) -> Iterator[None]:
        """Compute so for the time of the block. `num_samples` is the micro-batch, on which segments may depend."""
        if self._rematerialisation is None:  # not before the model is built
            self._fused = FusedKernels(self._model) if self._kernels == "fused" else None
            direct = self._fused.direct if self._fused else None
            self._rematerialisation = Rematerialisation(self._model, self._remat, bind_recompute(self._model), direct)
        in_segments = self._rematerialisation.during(num_samples)
        if self._fused is None:
            with in_segments:
                yield
            return
        with self._fused.during(), in_segments:
            yield

    def of_step(self, step: Callable[..., Any], num_samples: int) -> Callable[..., Any]:
        """A step that does what `step` does, with the model computing so."""

        def computed(*arguments: Any) -> Any:
            with self.during(num_samples):
                return step(*arguments)

        return computed
