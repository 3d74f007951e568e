"""How a model computes during a step: which segments are recomputed, which layers fused operations serve."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from fitroom.backends.torch.kernels.attention import fused_attention
from fitroom.backends.torch.kernels.serve import FusedKernels
from fitroom.backends.torch.train.recompute import bind_recompute
from fitroom.keras_model.attention import layers_with_attention_dropout
from fitroom.keras_model.recompute import Rematerialisation
from fitroom.recipe import Remat


class Computation:
    """Has a model compute as a recipe says for the time of a block. The model stays the user's own."""

    def __init__(
        self, model: Any, *, remat: str | Remat | None, kernels: str | None, attention_dropout: str | None = None
    ) -> None:
        self._model, self._remat, self._kernels = model, remat, kernels
        self._attention_dropout = attention_dropout
        self._attentions: Sequence[Any] = ()
        self._fused: FusedKernels | None = None
        self._rematerialisation: Rematerialisation | None = None

    @contextmanager
    def during(self, num_samples: int) -> Iterator[None]:
        """Compute so for the time of the block. `num_samples` is the micro-batch, on which segments may depend."""
        if self._rematerialisation is None:  # not before the model is built
            if self._attention_dropout == "fused":
                self._attentions = layers_with_attention_dropout(self._model)
            self._fused = FusedKernels(self._model) if self._kernels == "fused" else None
            direct = self._fused.direct if self._fused else None
            self._rematerialisation = Rematerialisation(self._model, self._remat, bind_recompute(self._model), direct)
        kernels = nullcontext() if self._fused is None else self._fused.during()
        with fused_attention(self._attentions), kernels, self._rematerialisation.during(num_samples):
            yield

    def of_step(self, step: Callable[..., Any], num_samples: int) -> Callable[..., Any]:
        """A step that does what `step` does, with the model computing so."""

        def computed(*arguments: Any) -> Any:
            with self.during(num_samples):
                return step(*arguments)

        return computed
