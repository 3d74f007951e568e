"""What a recipe would take, were the model's augmentation in the input pipeline and the step jitted."""

from dataclasses import replace

from fitroom.cards.catalogue import Card
from fitroom.errors import FitroomError
from fitroom.estimating.estimate import estimate
from fitroom.memory.estimate import Estimate
from fitroom.memory.step import NO_LIMIT_BYTES
from fitroom.planning.request import PlanRequest, Say
from fitroom.recipe import Recipe


def estimate_without_augmentation(
    request: PlanRequest, recipe: Recipe, found: Estimate, card: Card, say: Say
) -> Estimate | None:
    """Estimate the planned step of the model without its leading augmentation; None where that changes nothing.

    `found` is the estimate of the plan: where that is of a jitted step, nothing is to be gained. `say` is called before
    there is something to wait for.
    """
    from fitroom.backends.choose import current_backend
    from fitroom.keras_model.augmentation import movable_augmentation, move_augmentation
    from fitroom.keras_model.jit_choice import jit_choice
    from fitroom.keras_model.layers import can_be_jitted

    model = request.model
    is_chosen = "jit" in request.keep or jit_choice(model) is False
    if found.method != "traced" or current_backend().name == "torch" or is_chosen or can_be_jitted(model):
        return None
    if not movable_augmentation(model):
        return None
    say("estimating the step without augmentation in it")
    try:
        rest, _ = move_augmentation(model)
        without = estimate(
            rest,
            request.batch_size,
            recipe=replace(recipe, jit=None, image_size=None),
            optimizer=None if recipe.optimizer else request.optimizer,
            loss=request.loss,
            gpu=card,
            limit=NO_LIMIT_BYTES,
        )
    except FitroomError:  # no compiler, or augmentation that stays
        return None
    return without if without.method == "compiled" else None
