"""Rollback: a step that fails leaves the model as it was before.

Statistics, seeds and metrics are copied before each step. Weights and optimizer are copied just before their update, by
`Updates`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
from keras.src.backend.common import global_state  # no public name leads to the seed of layers that have none

from fitroom.backends.signals import defer_signals
from fitroom.backends.torch.train.snapshot import Snapshot, random_state, set_random_state
from fitroom.backends.torch.train.updates import Updates
from fitroom.errors import StateLostError
from fitroom.keras_model.optimizers import extra_optimizers
from fitroom.keras_model.state import forward_state

_KERAS_SEED = "global_seed_generator"


class Rollback:
    """Restores what a step of one built model changed, where the step fails."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._updates = Updates()
        state = forward_state(model)
        wrapped = [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.TorchModuleWrapper)]
        self.seeds = [variable._value for variable in state.seeds]
        """States of the model's random generators."""
        self._statistics = [variable._value for variable in state.statistics]
        self._statistics += [buffer for layer in wrapped for buffer in layer.module.buffers()]
        self._other = [variable._value for variable in (*state.seeds, *model.metrics_variables)]
        self._draws_from_torch = bool(wrapped or state.seeds)
        """Modules of PyTorch take random numbers from its own generators, and so does a Dropout without a seed."""
        self._helpers = extra_optimizers(model)
        lasting = [*model.variables, *(v for optimizer in self._optimizers() for v in optimizer.variables)]
        passing = {id(tensor) for tensor in (*self._statistics, *self._other)}
        self._lasting = [variable._value for variable in lasting if id(variable._value) not in passing]

    @contextmanager
    def all_or_nothing(self) -> Iterator[Snapshot]:
        """Roll back where the block, one step, raises; then its error is raised on.

        The snapshot has the statistics that every micro-batch starts from.
        """
        statistics, other = Snapshot(self._statistics), Snapshot([*self._other, *_keras_seed()])
        seed = global_state.get_global_attribute(_KERAS_SEED)
        random = random_state() if self._draws_from_torch else None
        with self._updates.guard(self._optimizers(), self._lasting):
            try:
                yield statistics
            except BaseException as error:
                with defer_signals():
                    self.drop_gradients()
                    self._model._clear_losses()  # what layers added in the forward pass holds its tensors
                    is_whole = self._updates.roll_back()
                    statistics.restore()
                    other.restore()
                    global_state.set_global_attribute(_KERAS_SEED, seed)
                    if random is not None:
                        set_random_state(random)
                if is_whole:
                    raise
                raise StateLostError(
                    f"The step failed in the middle of an update that could not be rolled back, so that weights and "
                    f"optimizer are half changed now: {error}",
                    hint="resume from the last checkpoint: `fitroom.fit(..., run_dir=...)` writes them",
                ) from error

    def drop_gradients(self) -> None:
        """Free the gradients of all weights."""
        for tensor in self._lasting:
            tensor.grad = None

    def _optimizers(self) -> list[Any]:
        own = getattr(self._model, "optimizer", None)  # a model that only evaluates or predicts may have none
        return [*([] if own is None else [own]), *self._helpers]


def _keras_seed() -> list[Any]:
    generator = global_state.get_global_attribute(_KERAS_SEED)
    return [] if generator is None else [generator.state._value]
