"""Values for a network: ImageNet's, or a file's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fitroom.classify.options import IMAGENET, NO_WEIGHTS
from fitroom.errors import FitroomError, InputError


def imagenet_or_refuse(name: str, build: Callable[[], Any]) -> Any:
    """What `build` gives, which downloads weights where they are not kept yet."""
    try:
        return build()
    except FitroomError:
        raise
    except Exception as error:
        said = str(error).strip().splitlines()
        raise InputError(
            f"The ImageNet weights of {name} could not be downloaded: {said[0] if said else type(error).__name__}",
            hint="train from scratch with --weights none; or bring the file from a machine with a network and give it "
            "as --weights FILE (Keras keeps it in ~/.keras/models there)",
        ) from error


def check_there(weights: str | None) -> None:
    """Refuse a file that is not there, before anything slow begins."""
    if weights not in (None, IMAGENET, NO_WEIGHTS) and not Path(weights).is_file():
        raise InputError(
            f"There is no file of weights {weights!r}.",
            hint="--weights is imagenet, none, or a file such as a.weights.h5",
        )


def read_weights(model: Any, features: Any, file: str) -> tuple[str, ...]:
    """Give a network the values of a file: of all of it, or of all but its head. What to say of it."""
    check_there(file)
    path = Path(file)
    try:
        model.load_weights(path)
        return ()
    except Exception as error:
        of_whole = error
    try:
        features.load_weights(path)
        return (f"{path.name} has no values for the last layer, which begins anew.",)
    except Exception:
        said = str(of_whole).strip().splitlines()
        raise InputError(
            f"The weights in {file} are not of this model: {said[0][:300] if said else type(of_whole).__name__}",
            hint="they must be of the same --model, saved with `model.save_weights('a.weights.h5')` or Keras's own "
            "without the top; a .keras file is a model: give it as --model",
        ) from of_whole
