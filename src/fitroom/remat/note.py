"""A sentence on what a recipe computes again, for whoever reads an estimate of it."""

from typing import Any

from fitroom.recipe import Remat
from fitroom.remat.choice import Choice
from fitroom.remat.graph import functional_of


def remat_note(model: Any, remat: str | Remat | None) -> tuple[str, ...]:
    """The sentence, or nothing where nothing was asked for. A budget must have become segments before."""
    if remat in (None, "none"):
        return ()
    if functional_of(model) is None:
        return ("Each layer of the model that is made of layers is computed again in the backward pass.",)
    choice = Choice.of_model(model)
    cover = choice.cover(remat or "none")
    if not cover.segments:
        why = "for this model that would hardly save anything" if remat == "blocks" else "nothing has to be"
        return (f"No layers are computed again in the backward pass: {why}.",)
    share = 100 * cover.operations / int(choice.chain.operations.sum())
    segments = (
        "One segment of its layers is"
        if len(cover.segments) == 1
        else f"{len(cover.segments)} segments of its layers are"
    )
    return (f"{segments} computed again in the backward pass, {share:.0f} % of the forward pass's operations.",)
