"""`fitroom.freeze`: freezes the layers that a plan leaves untrained."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras


def freeze(model: "keras.Model", number: int) -> None:
    """Freeze the first `number` layers with weights for good. Compile the model afterwards.

    Layers count in the order in which data pass through them; those of a backbone inside the model count one by one.

    Args:
        model: a built `keras.Model`.
        number: how many layers with weights are not trained.

    Example:
        >>> fitroom.freeze(model, plan.recipe.frozen_layers)  # doctest: +SKIP
        >>> model.compile("adam", "sparse_categorical_crossentropy")  # doctest: +SKIP
        >>> fitroom.fit(model, x, y, batch_size=256, plan=plan)  # doctest: +SKIP
    """
    from fitroom.keras_model.freezing import freeze_first

    freeze_first(model, number)
