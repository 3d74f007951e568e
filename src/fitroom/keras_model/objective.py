"""The loss of a whole batch as a sum over micro-batches.

Keras divides a loss by the batch it sees: by its samples, by their weights, or by what a mask leaves of them. Each
micro-batch's loss is therefore taken times its share, its own divisor over the whole batch's, and the shares of a
loss add up to 1 (or are 1 each, for a loss that is a sum). So the sum over the micro-batches is the loss of the whole
batch, its gradient too, however unequal the micro-batches are.

Losses that layers add are averages over the batch (Keras divides activity regularisation by it), and weight
regularisers know no samples: both count by the share of the samples.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fitroom.batch import Batch, StepName
from fitroom.errors import ModelError
from fitroom.keras_model.loss_trials import TRIED_SAMPLES, LossTrial, check_added_losses, sum_weights
from fitroom.keras_model.losses import Kind, divisor_of, is_from_keras, is_separable, kind_of, may_mask, serve_losses
from fitroom.keras_model.private import all_layers, compiled_loss, loss_tracker


class Objective:
    """The loss that a compiled model is trained for, in a form that micro-batches add up to.

    Its methods with tensors use Keras's operations alone and can be traced by any framework.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._kinds: tuple[Kind, ...] | None = None
        self._why_coupled: str | None = None

    def why_whole(self, step: StepName = "train_step") -> str | None:
        """Why a step of this model needs whole batches, or None where nothing is known against micro-batches."""
        for name in (step,) if step == "predict_step" else (step, "compute_loss"):
            if not is_from_keras(getattr(type(self.model), name)):
                return f"the model brings its own `{name}`"
        if any(getattr(layer, "stateful", False) for layer in all_layers(self.model)):
            return "a layer keeps its state from batch to batch"
        if step == "predict_step":
            return None
        if any(getattr(variable, "overwrite_with_gradient", False) for variable in self.model.trainable_variables):
            return "weights are overwritten with their gradients, as in float8"
        for loss in self._given_losses():
            if getattr(loss, "reduction", "") in (None, "none"):
                return f"the loss {loss.name!r} has no reduction"
        return self._why_coupled

    @property
    def untried_losses(self) -> list[str]:
        """The names of losses that are tried on data before a batch is divided."""
        untried = [loss for loss in self._given_losses() if not is_separable(loss)]
        return [str(getattr(loss, "name", None) or getattr(loss, "__name__", type(loss).__name__)) for loss in untried]

    def check_can_cut(self, step: StepName) -> None:
        """Raise ModelError where this step of Keras needs whole batches."""
        if why := self.why_whole(step):
            raise ModelError(
                f"Batches of {self.model.name!r} cannot be split into micro-batches: {why}.",
                hint="leave `micro_batch` out, and choose a batch_size that fits whole",
            )

    @property
    def num_losses(self) -> int:
        """How many losses `compile` was given, counting one for each output."""
        return len(self._losses())

    @property
    def counts(self) -> bool:
        """Whether `divisors` has to be run on every micro-batch, since masks decide what a loss divides by."""
        return any(kind == "counted" for kind in self.kinds())

    def kinds(self) -> tuple[Kind, ...]:
        """What each loss divides by."""
        if self._kinds is None:
            raise RuntimeError("`try_losses` comes first")
        return self._kinds

    def try_losses(self, batch: Batch, predict: Callable[[Any], Any]) -> None:
        """Find out what each loss divides by; raises ModelError where one couples the samples of a batch.

        `predict` gives the model's outputs for some inputs. It is called for losses that are not Keras's own: the loss
        of a few samples must be the mean, or the sum, of the losses of its parts.
        """
        if self._kinds is not None:
            return
        try:
            self._kinds = self._try_losses(batch, predict)
        except ModelError as error:
            self._why_coupled = error.message[:1].lower() + error.message[1:].removesuffix(".")
            raise

    def _try_losses(self, batch: Batch, predict: Callable[[Any], Any]) -> tuple[Kind, ...]:
        check_added_losses(self.model, batch.slice(0, min(TRIED_SAMPLES, batch.size)))
        kinds = [kind_of(loss, may_mask=may_mask(self.model)) for loss in self._losses()]
        if None in kinds:
            found_kinds = LossTrial(compiled_loss(self.model)).kinds(batch.slice(0, TRIED_SAMPLES), predict)
            kinds = [known or found for known, found in zip(kinds, found_kinds, strict=True)]
            if may_mask(self.model):
                kinds = ["sum" if kind == "sum" else "counted" for kind in kinds]
        return tuple(kind for kind in kinds if kind is not None)

    def assume_losses(self) -> None:
        """In place of `try_losses` where there is no data: losses that are not Keras's own are taken for means."""
        masks = may_mask(self.model)
        kinds = [kind_of(loss, may_mask=masks) for loss in self._losses()]
        self._kinds = tuple(kind or ("counted" if masks else "mean") for kind in kinds)

    def shares(self, parts: Sequence[Batch], divisors: Sequence[Sequence[float]] | None) -> np.ndarray:
        """The share of each micro-batch (rows) in each loss (columns).

        `divisors` are those of the micro-batches, as the method `divisors` gives them; needed where `counts` is true.
        """
        sizes = np.array([part.size for part in parts], "float64")
        columns = []
        for index, kind in enumerate(self.kinds()):
            if kind == "sum":
                columns.append(np.ones(len(parts)))
                continue
            of_parts = sizes
            if kind == "counted":
                assert divisors is not None
                of_parts = np.array([row[index] for row in divisors], "float64")
            elif kind == "weighted" and parts[0].sample_weight is not None:
                of_parts = np.array([sum_weights(compiled_loss(self.model), part, index) for part in parts])
            total = of_parts.sum()
            columns.append(of_parts / total if total else np.zeros(len(parts)))
        return np.stack(columns, axis=1).astype("float32") if columns else np.zeros((len(parts), 0), "float32")

    def loss(
        self, y: Any, y_pred: Any, sample_weight: Any, added: Sequence[Any], shares: Any, sample_share: Any
    ) -> tuple[Any, list[Any]]:
        """What one micro-batch adds to the loss of the whole batch, and to each of its losses.

        `added` is `model.losses` after the forward pass, `shares` the micro-batch's row of `shares`, and
        `sample_share` its samples over the batch's.
        """
        from keras import ops

        total, values = ops.zeros((), "float32"), []
        if compiled_loss(self.model) is not None:

            def shared(index: int, loss: Any, y_true: Any, y_pred: Any, weight: Any) -> Any:
                value = ops.cast(loss(y_true, y_pred, weight), "float32") * shares[index]
                values.append(value)
                return value

            with serve_losses(compiled_loss(self.model), shared):
                total = compiled_loss(self.model)(y, y_pred, sample_weight)
        for loss in added:
            total = total + ops.cast(ops.sum(ops.cast(loss, "float32")), "float32") * sample_share
        return total, values

    def divisors(self, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        """What each loss divides a micro-batch by: a vector, 1 where neither masks nor weights play a role."""
        from keras import ops

        found: list[Any] = []

        def count(index: int, loss: Any, y_true: Any, y_pred: Any, weight: Any) -> Any:
            kind = self.kinds()[index]
            if kind == "counted":
                found.append(divisor_of(loss, y_true, y_pred, weight))
            elif kind == "weighted" and weight is not None:
                found.append(ops.sum(ops.cast(weight, "float32")))
            else:
                found.append(ops.ones(()))
            return ops.zeros(())

        with serve_losses(compiled_loss(self.model), count):
            compiled_loss(self.model)(y, y_pred, sample_weight)
        return ops.stack([ops.cast(value, "float32") for value in found])

    def track(self, total: Any, values: Sequence[Any], num_samples: Any) -> None:
        """Update the model's loss trackers with the loss of the whole batch, as Keras does."""
        loss_tracker(self.model).update_state(total, sample_weight=num_samples)
        if compiled_loss(self.model) is not None:
            for tracker, value in zip(compiled_loss(self.model).metrics, values, strict=False):
                tracker.update_state(value, sample_weight=num_samples)

    def _given_losses(self) -> list[Any]:
        """The losses, as objects or functions, also before Keras has seen a batch."""
        import keras

        if compiled_loss(self.model) is not None and compiled_loss(self.model).built:
            return self._losses()
        given = [loss for loss in keras.tree.flatten(getattr(self.model, "loss", None)) if loss is not None]
        try:
            return [keras.losses.get(loss) for loss in given]
        except ValueError as error:
            raise ModelError(f"The loss of {self.model.name!r}: {error}", hint="one of keras.losses") from error

    def _losses(self) -> list[Any]:
        if compiled_loss(self.model) is None:
            return []
        if not compiled_loss(self.model).built:
            raise RuntimeError("the model's loss must be built first")
        return [served.loss for served in compiled_loss(self.model)._flat_losses]
