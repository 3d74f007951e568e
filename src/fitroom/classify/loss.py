"""How wrong a network is about whole-number labels."""

from typing import Any

import keras  # noqa: TID253 - whoever imports this trains


class SmoothedCrossentropy(keras.losses.Loss):  # type: ignore[misc]
    """Cross-entropy for labels that are believed not quite, which Keras has for one-hot labels only."""

    def __init__(
        self, smoothing: float, *, from_logits: bool, name: str = "smoothed_crossentropy", **options: Any
    ) -> None:
        super().__init__(name=name, **options)
        self.smoothing, self.from_logits = smoothing, from_logits

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Of each sample."""
        labels = keras.ops.reshape(keras.ops.cast(y_true, "int32"), (-1,))
        return keras.losses.categorical_crossentropy(
            keras.ops.one_hot(labels, y_pred.shape[-1], dtype=y_pred.dtype),
            y_pred,
            from_logits=self.from_logits,
            label_smoothing=self.smoothing,
        )

    def get_config(self) -> dict[str, Any]:
        """As Keras asks."""
        own: dict[str, Any] = super().get_config()
        return own | {"smoothing": self.smoothing, "from_logits": self.from_logits}


def loss_of(*, gives_probabilities: bool, smoothing: float) -> Any:
    """The loss of a network that ends in probabilities or in logits."""
    if smoothing:
        return SmoothedCrossentropy(smoothing, from_logits=not gives_probabilities)
    return keras.losses.SparseCategoricalCrossentropy(from_logits=not gives_probabilities)


def metrics_of(num_classes: int) -> list[Any]:
    """Accuracy, and among the first five where that says something."""
    accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    if num_classes <= 5:
        return [accuracy]
    return [accuracy, keras.metrics.SparseTopKCategoricalAccuracy(k=5, name="top_5_accuracy")]
