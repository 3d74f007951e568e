"""Decoding, resizing, warping and recolouring of images: by OpenCV, which is several times faster, or by Pillow.

Both do the same to an image up to rounding, so a run is resumed only with the library that it was started with.
"""

import math
from functools import cache
from typing import Any, Protocol

import numpy as np
import PIL
from PIL import Image

from fitroom.data.settings import Resize


class Pixels(Protocol):
    """What a library does with images, arrays of uint8 (height, width, 3)."""

    name: str
    version: str

    def decode_jpeg(self, data: bytes, scale: int, image_size: int, resize: Resize) -> Any:
        """Decode a JPEG at 1/`scale` and resize it; None where the general path with Pillow has to do it."""

    def warp(self, image: Any, affine: Any) -> Any:
        """Take each pixel of the result from where the 2 x 3 matrix sends it; beyond the border, reflected."""

    def transform_colours(self, image: Any, matrix: Any) -> Any:
        """Multiply the colour of each pixel by a 3 x 4 matrix, whose last column is added."""


@cache
def choose_pixel_library() -> Pixels:
    """OpenCV where it is installed, else Pillow."""
    try:
        import cv2
    except ImportError:
        return Pillow()
    return OpenCV(cv2)


def square_box(width: int, height: int) -> tuple[int, int, int, int]:
    """The largest square in the middle of an image: left, top, right, bottom, in whole pixels so as not to blur.

    >>> square_box(301, 200)
    (50, 0, 250, 200)
    """
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def inner_size(width: int, height: int, size: int) -> tuple[int, int]:
    """Width and height scaled so that the longer one is `size`.

    >>> inner_size(400, 300, 200)
    (200, 150)
    """
    longest = max(width, height)
    return max(1, round(width * size / longest)), max(1, round(height * size / longest))


class OpenCV:
    """Pixels by OpenCV, given as its module `cv2`."""

    name = "opencv"

    def __init__(self, cv2: Any) -> None:
        self._cv2 = cv2
        self.version: str = cv2.__version__
        self._read_flags = {
            1: cv2.IMREAD_COLOR,
            2: cv2.IMREAD_REDUCED_COLOR_2,
            4: cv2.IMREAD_REDUCED_COLOR_4,
            8: cv2.IMREAD_REDUCED_COLOR_8,
        }

    def decode_jpeg(self, data: bytes, scale: int, image_size: int, resize: Resize) -> Any:
        """Decode a JPEG at 1/`scale` and resize it; None where OpenCV refuses it."""
        cv2 = self._cv2
        try:
            flags = self._read_flags[scale] | cv2.IMREAD_IGNORE_ORIENTATION
            image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
            return None if image is None else cv2.cvtColor(self._fit(image, image_size, resize), cv2.COLOR_BGR2RGB)
        except cv2.error as error:
            if error.code == cv2.Error.STS_NO_MEM:
                raise MemoryError(str(error)) from error
            return None

    def warp(self, image: Any, affine: Any) -> Any:
        """Take each pixel of the result from where the 2 x 3 matrix sends it; beyond the border, reflected."""
        cv2 = self._cv2
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        return cv2.warpAffine(image, affine, image.shape[1::-1], flags=flags, borderMode=cv2.BORDER_REFLECT_101)

    def transform_colours(self, image: Any, matrix: Any) -> Any:
        """Multiply the colour of each pixel by a 3 x 4 matrix, whose last column is added."""
        return self._cv2.transform(image, matrix)

    def _fit(self, image: Any, image_size: int, resize: Resize) -> Any:
        """Bring a decoded image to the square that is asked for."""
        height, width = image.shape[:2]
        if resize == "pad":
            inner = inner_size(width, height, image_size)
            left, top = (image_size - inner[0]) // 2, (image_size - inner[1]) // 2
            square: Any = np.zeros((image_size, image_size, 3), np.uint8)
            square[top : top + inner[1], left : left + inner[0]] = self._resize(image, *inner)
            return square
        if resize == "crop":
            left, top, right, bottom = square_box(width, height)
            image = image[top:bottom, left:right]
        return self._resize(image, image_size, image_size)

    def _resize(self, image: Any, width: int, height: int) -> Any:
        cv2 = self._cv2
        reduction = max(image.shape[0] / height, image.shape[1] / width)
        if reduction == 1 and image.shape[:2] == (height, width):
            return image
        # Down to half the size, linear interpolation of four neighbours reads every pixel; below that pixels would be
        # left out, and all have to be averaged.
        return cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR if reduction <= 2 else cv2.INTER_AREA)


class Pillow:
    """Pixels by Pillow."""

    name = "pillow"
    version: str = PIL.__version__

    def decode_jpeg(self, data: bytes, scale: int, image_size: int, resize: Resize) -> Any:
        """None: Pillow decodes a JPEG like any other image."""
        return None

    def warp(self, image: Any, affine: Any) -> Any:
        """Take each pixel of the result from where the 2 x 3 matrix sends it; beyond the border, reflected."""
        height, width = image.shape[:2]
        corners = affine @ np.array([[0, width, 0, width], [0, 0, height, height], [1, 1, 1, 1]])
        beyond = max(0.0, -float(corners.min()), *(corners.max(axis=1) - (width, height)).tolist())
        margin = min(math.ceil(beyond) + 1, width - 1, height - 1)
        padded = np.pad(image, ((margin, margin), (margin, margin), (0, 0)), mode="reflect")
        offset = affine[:, 2] + margin + (affine[:, :2] @ (-0.5, -0.5)) + 0.5  # Pillow counts from a pixel's corner
        coefficients = (*affine[0, :2], offset[0], *affine[1, :2], offset[1])
        source = Image.fromarray(padded)
        warped = source.transform((width, height), Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR)
        return np.asarray(warped)

    def transform_colours(self, image: Any, matrix: Any) -> Any:
        """Multiply the colour of each pixel by a 3 x 4 matrix, whose last column is added."""
        return np.asarray(Image.fromarray(image).convert("RGB", tuple(matrix.ravel().tolist())))
