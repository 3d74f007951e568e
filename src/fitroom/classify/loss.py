"""Loss and metrics of a classifier with integer labels."""

from typing import Any

import keras  # noqa: TID253 - imported once the backend is started


class SmoothedCrossentropy(keras.losses.Loss):  # type: ignore[misc]
    """Cross-entropy with label smoothing for integer labels; Keras has it for one-hot labels only.

    Model files name the class with its module.
    """

    def __init__(
        self, smoothing: float, *, from_logits: bool, name: str = "smoothed_crossentropy", **options: Any
    ) -> None:
        super().__init__(name=name, **options)
        self.smoothing, self.from_logits = smoothing, from_logits

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The loss of each sample."""
        labels = keras.ops.reshape(keras.ops.cast(y_true, "int32"), (-1,))
        return keras.losses.categorical_crossentropy(
            keras.ops.one_hot(labels, y_pred.shape[-1], dtype=y_pred.dtype),
            y_pred,
            from_logits=self.from_logits,
            label_smoothing=self.smoothing,
        )

    def get_config(self) -> dict[str, Any]:
        """The arguments, as Keras saves them."""
        own: dict[str, Any] = super().get_config()
        return own | {"smoothing": self.smoothing, "from_logits": self.from_logits}


def build_loss(*, gives_probabilities: bool, smoothing: float) -> Any:
    """The loss for a network whose outputs are probabilities or logits."""
    if smoothing:
        return SmoothedCrossentropy(smoothing, from_logits=not gives_probabilities)
    return keras.losses.SparseCategoricalCrossentropy(from_logits=not gives_probabilities)


def build_metrics(num_classes: int) -> list[Any]:
    """Accuracy, and top-5 accuracy where there are more than five classes."""
    accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    if num_classes <= 5:
        return [accuracy]
    return [accuracy, keras.metrics.SparseTopKCategoricalAccuracy(k=5, name="top_5_accuracy")]
