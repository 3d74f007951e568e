"""Pixels by OpenCV."""

from typing import Any

import cv2
import numpy as np

from fitroom.data.settings import Resize
from fitroom.data.shape import inner_size, square_box

_READ = {
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}


class OpenCV:
    """See `Pixels`."""

    name = "opencv"
    version: str = cv2.__version__

    def jpeg(self, data: bytes, scale: int, image_size: int, resize: Resize) -> Any:
        """A JPEG decoded at 1/`scale` and resized; None where it is refused."""
        try:
            picture = cv2.imdecode(np.frombuffer(data, np.uint8), _READ[scale] | cv2.IMREAD_IGNORE_ORIENTATION)
            return None if picture is None else cv2.cvtColor(_fitted(picture, image_size, resize), cv2.COLOR_BGR2RGB)
        except cv2.error as error:
            if error.code == cv2.Error.STS_NO_MEM:
                raise MemoryError(str(error)) from error
            return None

    def warped(self, picture: Any, affine: Any) -> Any:
        """Each place of the result taken from where the matrix sends it."""
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        return cv2.warpAffine(picture, affine, picture.shape[1::-1], flags=flags, borderMode=cv2.BORDER_REFLECT_101)

    def coloured(self, picture: Any, matrix: Any) -> Any:
        """Each colour multiplied by a matrix."""
        return cv2.transform(picture, matrix)


def _fitted(picture: Any, image_size: int, resize: Resize) -> Any:
    height, width = picture.shape[:2]
    if resize == "pad":
        inner = inner_size(width, height, image_size)
        left, top = (image_size - inner[0]) // 2, (image_size - inner[1]) // 2
        square: Any = np.zeros((image_size, image_size, 3), np.uint8)
        square[top : top + inner[1], left : left + inner[0]] = _resized(picture, *inner)
        return square
    if resize == "crop":
        left, top, right, bottom = square_box(width, height)
        picture = picture[top:bottom, left:right]
    return _resized(picture, image_size, image_size)


def _resized(picture: Any, width: int, height: int) -> Any:
    shrinks = max(picture.shape[0] / height, picture.shape[1] / width)
    if shrinks == 1 and picture.shape[:2] == (height, width):
        return picture
    # Up to half the size four neighbours see every pixel; beyond that all have to be averaged.
    return cv2.resize(picture, (width, height), interpolation=cv2.INTER_LINEAR if shrinks <= 2 else cv2.INTER_AREA)
