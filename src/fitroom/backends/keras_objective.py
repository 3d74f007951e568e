"""The loss of a whole batch as a sum over micro-batches.

Keras divides a loss by the batch it sees: by its samples, by their weights, or by what a mask leaves of them. Each
micro-batch's loss is therefore taken times its share, its own divisor over the whole batch's, and the shares of a
loss add up to 1 (or are 1 each, for a loss that is a sum). So the sum of what the micro-batches give is the loss of
the whole batch, its gradient too, however unequal the parts are.

Losses that layers add are averages over the batch (Keras divides activity regularisation by it), and weight
regularisers know no samples: both count by the share of the samples.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fitroom.errors import ModelError
from fitroom.train.batch import Batch

Kind = Literal["mean", "sum", "weighted", "counted"]
"""What a loss divides by: samples, nothing, sample weights, or what only a forward pass can count (masks)."""

_SEPARABLE = {
    "mean_squared_error", "mean_absolute_error", "mean_absolute_percentage_error", "mean_squared_logarithmic_error",
    "huber", "log_cosh", "binary_crossentropy", "binary_focal_crossentropy", "categorical_crossentropy",
    "categorical_focal_crossentropy", "sparse_categorical_crossentropy", "hinge", "squared_hinge", "categorical_hinge",
    "kl_divergence", "poisson", "cosine_similarity", "ctc",
}  # fmt: skip
"""Of Keras's own losses those that are known to take each sample by itself; all others are tried out. By the names of
their functions, which a class of Keras's wraps, as a loss that is given by its name is."""

_TRIED_SAMPLES = 6
_TOLERANCE = 1e-5


class Objective:
    """The loss that a compiled model is trained for, in a form that can be cut.

    Its methods with tensors speak Keras's operations alone and can be traced by any framework.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._kinds: tuple[Kind, ...] | None = None

    @property
    def why_whole(self) -> str | None:
        """Why a batch of this model cannot be cut, or None where it can as far as one sees without data."""
        for name in ("train_step", "compute_loss"):
            if not getattr(type(self.model), name).__module__.startswith("keras."):
                return f"the model brings its own `{name}`"
        if any(getattr(variable, "overwrite_with_gradient", False) for variable in self.model.trainable_variables):
            return "weights are overwritten with their gradients, as in float8"
        if self.model._compile_loss is None or not self.model._compile_loss.built:
            return None
        for loss in self._losses():
            if loss.reduction in (None, "none"):
                return f"the loss {loss.name!r} has no reduction"
        return None

    def check_can_cut(self, step: Literal["train_step", "test_step"]) -> None:
        """Raise ModelError where a batch cannot be cut for this step of Keras's."""
        own = not getattr(type(self.model), step).__module__.startswith("keras.")
        if why := f"the model brings its own `{step}`" if own else self.why_whole:
            raise ModelError(
                f"Batches of {self.model.name!r} cannot be cut into micro-batches: {why}.",
                hint="leave `micro_batch` out, and choose a batch_size that fits whole",
            )

    @property
    def num_losses(self) -> int:
        """How many losses `compile` was given, counting one for each output."""
        return len(self._losses())

    @property
    def counts(self) -> bool:
        """Whether `divisors` has to be run on every part, since masks decide what a loss divides by."""
        return any(kind == "counted" for kind in self.kinds())

    def kinds(self) -> tuple[Kind, ...]:
        """What each loss divides by."""
        if self._kinds is None:
            raise RuntimeError("`try_losses` comes first")
        return self._kinds

    def try_losses(self, batch: Batch, predict: Callable[[Any], Any]) -> None:
        """Find out what each loss divides by; raises ModelError where one couples the samples of a batch.

        `predict` gives the model's outputs for some inputs. It is asked for losses that Keras did not bring: the loss
        of a few samples must be the mean, or the sum, of the losses of its parts.
        """
        if self._kinds is not None:
            return
        kinds = [_kind_of(loss, may_mask=may_mask(self.model)) for loss in self._losses()]
        if None in kinds:
            tried = self._tried(batch.part(0, _TRIED_SAMPLES), predict)
            kinds = [known or found for known, found in zip(kinds, tried, strict=True)]
            if may_mask(self.model):
                kinds = ["sum" if kind == "sum" else "counted" for kind in kinds]
        self._kinds = tuple(kind for kind in kinds if kind is not None)

    def assume_losses(self) -> None:
        """In place of `try_losses` where there is no data: losses that Keras did not bring are taken for means."""
        masks = may_mask(self.model)
        kinds = [_kind_of(loss, may_mask=masks) for loss in self._losses()]
        self._kinds = tuple(kind or ("counted" if masks else "mean") for kind in kinds)

    def shares(self, parts: Sequence[Batch], divisors: Sequence[Sequence[float]] | None) -> np.ndarray:
        """The share of each part (rows) in each loss (columns).

        `divisors` are those of the parts, as `divisors` gives them; needed where `counts` is true.
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
                of_parts = np.array([float(np.sum(self._weights(part, index))) for part in parts])
            total = of_parts.sum()
            columns.append(of_parts / total if total else np.zeros(len(parts)))
        return np.stack(columns, axis=1).astype("float32") if columns else np.zeros((len(parts), 0), "float32")

    def loss(
        self, y: Any, y_pred: Any, sample_weight: Any, added: Sequence[Any], shares: Any, sample_share: Any
    ) -> tuple[Any, list[Any]]:
        """What one part adds to the loss of the whole batch, and to each of its losses.

        `added` is `model.losses` after the forward pass, `shares` the part's row of `shares`, and `sample_share` its
        samples over the batch's.
        """
        from keras import ops

        total, values = ops.zeros((), "float32"), []
        if self.model._compile_loss is not None:

            def shared(index: int, loss: Any, y_true: Any, y_pred: Any, weight: Any) -> Any:
                value = ops.cast(loss(y_true, y_pred, weight), "float32") * shares[index]
                values.append(value)
                return value

            with _losses_served_by(self.model._compile_loss, shared):
                total = self.model._compile_loss(y, y_pred, sample_weight)
        for loss in added:
            total = total + ops.cast(ops.sum(ops.cast(loss, "float32")), "float32") * sample_share
        return total, values

    def divisors(self, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        """What each loss divides a part by: a vector, 1 for the losses where neither masks nor weights play a role."""
        from keras import ops

        found: list[Any] = []

        def count(index: int, loss: Any, y_true: Any, y_pred: Any, weight: Any) -> Any:
            kind = self.kinds()[index]
            if kind == "counted":
                found.append(_divisor(loss, y_true, y_pred, weight))
            elif kind == "weighted" and weight is not None:
                found.append(ops.sum(ops.cast(weight, "float32")))
            else:
                found.append(ops.ones(()))
            return ops.zeros(())

        with _losses_served_by(self.model._compile_loss, count):
            self.model._compile_loss(y, y_pred, sample_weight)
        return ops.stack([ops.cast(value, "float32") for value in found])

    def track(self, total: Any, values: Sequence[Any], num_samples: Any) -> None:
        """Tell the model's trackers the loss of the whole batch, as Keras does."""
        self.model._loss_tracker.update_state(total, sample_weight=num_samples)
        if self.model._compile_loss is not None:
            for tracker, value in zip(self.model._compile_loss.metrics, values, strict=False):
                tracker.update_state(value, sample_weight=num_samples)

    def _losses(self) -> list[Any]:
        if self.model._compile_loss is None:
            return []
        if not self.model._compile_loss.built:
            raise RuntimeError("the model's loss must be built first")
        return [served.loss for served in self.model._compile_loss._flat_losses]

    def _weights(self, part: Batch, index: int) -> Any:
        from keras import ops

        weights = part.sample_weight
        if isinstance(weights, dict | list | tuple):
            for key in self.model._compile_loss._flat_losses[index].path:
                weights = weights[key]
        return ops.convert_to_numpy(weights)  # a user's own loader may have put them on the card

    def _tried(self, few: Batch, predict: Callable[[Any], Any]) -> list[Kind]:
        if few.size < 2:
            raise ModelError("A loss that Keras did not bring cannot be cut into micro-batches of one sample.")
        outputs = predict(few.x)
        whole = self._values(few, outputs)
        # More than one way to cut: the parts of one may be alike by chance.
        cuts = [self._cut_values(few, outputs, first) for first in range(1, few.size)]
        kinds: list[Kind] = []
        for index, loss in enumerate(self._losses()):
            kind: Kind = "weighted" if loss.reduction == "mean_with_sample_weight" else "mean"
            if all(_close(whole[index], cut.mean(index, kind)) for cut in cuts):
                kinds.append(kind)
            elif all(_close(whole[index], cut.left[index] + cut.right[index]) for cut in cuts):
                kinds.append("sum")
            else:
                raise ModelError(
                    f"The loss {loss.name!r} couples the samples of a batch: its value for {few.size} samples "
                    f"({whole[index]:.6g}) is neither the mean nor the sum of its values for their parts.",
                    hint="such a batch cannot be cut into micro-batches; a smaller batch_size or image size can help",
                )
        return kinds

    def _cut_values(self, few: Batch, outputs: Any, first: int) -> "_Cut":
        left, right = few.part(0, first), few.part(first, few.size)
        weighted = few.sample_weight is not None
        return _Cut(
            left=self._values(left, _sliced(outputs, 0, first)),
            right=self._values(right, _sliced(outputs, first, few.size)),
            share=first / few.size,
            weight_shares=[
                float(np.sum(self._weights(left, index)) / np.sum(self._weights(few, index)))
                for index in range(self.num_losses if weighted else 0)
            ],
        )

    def _values(self, part: Batch, y_pred: Any) -> list[float]:
        from keras import ops

        values: list[float] = []

        def record(index: int, loss: Any, y_true: Any, y_pred: Any, weight: Any) -> Any:
            value = loss(y_true, y_pred, weight)
            values.append(float(ops.convert_to_numpy(ops.sum(value))))
            return value

        import keras

        as_tensors = part.mapped(ops.convert_to_tensor)
        outputs = keras.tree.map_structure(ops.convert_to_tensor, y_pred)
        with _losses_served_by(self.model._compile_loss, record):
            self.model._compile_loss(as_tensors.y, outputs, as_tensors.sample_weight)
        return values


def may_mask(model: Any) -> bool:
    """Whether a layer may give its outputs a mask, which a loss then divides by."""
    import keras

    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Masking) or getattr(layer, "mask_zero", False):
            return True
        is_own = not type(layer).__module__.startswith("keras.")
        if is_own and type(layer).compute_mask is not keras.layers.Layer.compute_mask and layer is not model:
            return True
    return False


def _kind_of(loss: Any, *, may_mask: bool) -> Kind | None:
    """What is known of a loss without trying it."""
    function = getattr(loss, "fn", None)
    are_kerass = all(getattr(each, "__module__", "").startswith("keras.") for each in (type(loss), function))
    if not are_kerass or getattr(function, "__name__", "") not in _SEPARABLE:
        return None
    if getattr(loss, "_fn_kwargs", {}).get("axis", -1) != -1:  # along the samples, it may be
        return None
    if loss.reduction == "sum":
        return "sum"
    if may_mask or getattr(loss, "ignore_class", None) is not None:
        return "counted"
    return "weighted" if loss.reduction == "mean_with_sample_weight" else "mean"


def _divisor(loss: Any, y_true: Any, y_pred: Any, weight: Any) -> Any:
    """What Keras divides the sum of the samples' losses by."""
    from keras import ops

    values = loss.call(ops.cast(y_true, loss.dtype), ops.cast(y_pred, loss.dtype))
    masks = [mask for mask in (_mask_of(y_pred), _mask_of(values)) if mask is not None]
    kept = None
    for mask in masks:
        mask = ops.cast(mask, "float32")
        kept = mask if kept is None else kept * mask
    if loss.reduction == "mean_with_sample_weight" and (weight is not None or kept is not None):
        if weight is None:
            return ops.sum(kept)
        weight = ops.cast(weight, "float32")
        if kept is not None and len(weight.shape) == len(kept.shape) - 1:
            weight = ops.expand_dims(weight, -1)
        return ops.sum(weight if kept is None else weight * kept)
    num_values = ops.cast(ops.size(values), "float32")
    if kept is None:
        return num_values
    return num_values * ops.sum(kept) / ops.cast(ops.size(kept), "float32")


def _mask_of(tensor: Any) -> Any:
    # Of tensors that take no attributes (JAX's in a trace) Keras keeps masks aside, and gives no public way to them.
    from keras.src.backend import get_keras_mask

    return get_keras_mask(tensor)


@dataclass(frozen=True, kw_only=True)
class _Cut:
    """What the losses are for the two parts of a few samples."""

    left: list[float]
    right: list[float]
    share: float
    """The left part's, by samples."""

    weight_shares: list[float]
    """The same by sample weights, for each loss; empty where there are none."""

    def mean(self, index: int, kind: Kind) -> float:
        """The mean of the parts."""
        share = self.weight_shares[index] if kind == "weighted" and self.weight_shares else self.share
        return share * self.left[index] + (1 - share) * self.right[index]


class _Served:
    """Stands in for one of the compiled losses."""

    def __init__(self, index: int, loss: Any, serve: Callable[..., Any]) -> None:
        self.index, self.loss, self.serve = index, loss, serve

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return self.serve(self.index, self.loss, y_true, y_pred, sample_weight)


class _Untold:
    """Stands in for a loss tracker: it is told of the whole batch at the end, not of its parts."""

    def update_state(self, *_: Any, **__: Any) -> None:
        """Nothing."""


@contextmanager
def _losses_served_by(compile_loss: Any, serve: Callable[..., Any]) -> Iterator[None]:
    """Have `serve(index, loss, y_true, y_pred, weight)` called in place of each loss.

    Keras pairs targets, outputs and weights with the losses by rules of its own, which are not repeated here. There is
    no public way in, hence the underscores.
    """
    losses, metrics = compile_loss._flat_losses, compile_loss._metrics
    compile_loss._flat_losses = [
        each._replace(loss=_Served(index, each.loss, serve)) for index, each in enumerate(losses)
    ]
    compile_loss._metrics = [_Untold() for _ in metrics]
    try:
        yield
    finally:
        compile_loss._flat_losses, compile_loss._metrics = losses, metrics


def _sliced(structure: Any, start: int, stop: int) -> Any:
    import keras

    return keras.tree.map_structure(lambda leaf: leaf[start:stop], structure)


def _close(one: float, other: float) -> bool:
    return bool(np.isclose(one, other, rtol=_TOLERANCE, atol=1e-6))
