"""One picture by itself: for predicting, and to show it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fitroom.data.settings import check_resize
from fitroom.data.walk import shown
from fitroom.errors import InputError


def read_picture(path: str | Path, image_size: int, resize: str = "crop") -> Any:
    """A picture as training sees it: uint8, (image_size, image_size, 3). Raises InputError for what is none."""
    import numpy as np

    from fitroom.data.decode import decoded, verified

    way = check_resize(resize)
    return _read(path, lambda data: np.array(decoded(data, verified(data), image_size, way)))


def thumbnail(path: str | Path, size: int = 96) -> str:
    """A small picture, all of it, as the `src` of an HTML `<img>`: "data:image/jpeg;base64,..."."""
    import base64
    import io

    from fitroom.data.decode import image_of

    file = io.BytesIO()
    _read(path, lambda data: image_of(data, size, "whole")).save(file, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def _read(path: str | Path, make: Callable[[bytes], Any]) -> Any:
    from fitroom.data.decode import read_bytes
    from fitroom.data.opening import BadPictureError

    try:
        return make(read_bytes(Path(path)))
    except BadPictureError as error:
        raise InputError(
            f"{shown(path)} cannot be used as a picture: {error}.", hint="give a JPEG or PNG file"
        ) from None
