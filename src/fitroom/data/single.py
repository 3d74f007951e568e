"""One picture by itself: for predicting, and to show it."""

from pathlib import Path
from typing import Any

from fitroom.data.settings import Resize, check_resize
from fitroom.data.walk import shown
from fitroom.errors import InputError


def read_picture(path: str | Path, image_size: int, resize: str = "crop") -> Any:
    """A picture as training sees it: uint8, (image_size, image_size, 3). Raises InputError for what is none."""
    import numpy as np

    return np.array(_image(path, image_size, check_resize(resize)))


def thumbnail(path: str | Path, size: int = 96) -> str:
    """A small picture, all of it, as the `src` of an HTML `<img>`: "data:image/jpeg;base64,..."."""
    import base64
    import io

    file = io.BytesIO()
    _image(path, size, "whole").save(file, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def _image(path: str | Path, size: int, resize: Resize) -> Any:
    from fitroom.data.decode import decoded, read_bytes
    from fitroom.data.opening import BadPictureError

    try:
        return decoded(read_bytes(Path(path)), size, resize)
    except BadPictureError as error:
        raise InputError(
            f"{shown(path)} cannot be used as a picture: {error}.", hint="give a JPEG or PNG file"
        ) from None
