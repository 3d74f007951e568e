"""A model at the size of pictures that was asked for, and at others."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fitroom.errors import ModelError
from fitroom.keras_model.loading.source import ModelSource, kind_of, load_model


@dataclass(frozen=True, kw_only=True)
class ResizableModel:
    """A model, and what makes it for pictures of another size; None where it does not take pictures alone."""

    model: Any
    rebuild: Callable[[int], Any] | None


def load_resizable(source: ModelSource) -> ResizableModel:
    """Names and functions of `image_size` are built anew; of other models twins are made, as far as weights allow."""
    from fitroom.keras_model.loading.function import takes_image_size

    kind = kind_of(source.text)
    if kind == "name":
        return _built(source.image_size, lambda size: load_model(replace(source, image_size=size)))
    if kind == "function" and takes_image_size(source.text):
        return _built(source.image_size, lambda size: load_model(replace(source, offers=_offers(size))))
    return _twinned(source)


def _built(size: int | None, build: Callable[[int | None], Any]) -> ResizableModel:
    return ResizableModel(model=build(size), rebuild=build)


def _offers(size: int | None) -> dict[str, int]:
    return {"image_size": size} if size else {}


def _twinned(source: ModelSource) -> ResizableModel:
    from fitroom.keras_model.twin import twin_of_size

    model, wanted = load_model(source), source.image_size
    if not _takes_pictures(model):
        if wanted:
            raise ModelError(
                f"The model {model.name!r} takes no pictures, or more than pictures. Received: image size {wanted}.",
                hint="leave --image-size out",
            )
        return ResizableModel(model=model, rebuild=None)
    if wanted and tuple(model.inputs[0].shape[1:3]) != (wanted, wanted):
        model = twin_of_size(model, wanted)
    return ResizableModel(model=model, rebuild=lambda size: twin_of_size(model, size))


def _takes_pictures(model: Any) -> bool:
    inputs = getattr(model, "inputs", None) or []  # a subclassed model may know none
    return len(inputs) == 1 and len(inputs[0].shape) == 4
