"""`fitroom.freeze`: what a plan with frozen layers asks for."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras


def freeze(model: "keras.Model", number: int) -> None:
    """Leave the first `number` layers with weights untrained, for good; compile the model after it.

    They are counted in the order in which data run through them, those of a backbone inside the model one by one.

    Example:
        >>> fitroom.freeze(model, plan.recipe.frozen_layers)  # doctest: +SKIP
        >>> model.compile("adam", "sparse_categorical_crossentropy")  # doctest: +SKIP
        >>> fitroom.fit(model, x, y, batch_size=256, plan=plan)  # doctest: +SKIP
    """
    from fitroom.keras_model.freezing import freeze_first

    freeze_first(model, number)
