"""Pixels by Pillow."""

import math
from typing import Any

import numpy as np
import PIL
from PIL import Image

from fitroom.data.settings import Resize


class Pillow:
    """See `Pixels`."""

    name = "pillow"
    version: str = PIL.__version__

    def jpeg(self, data: bytes, scale: int, image_size: int, resize: Resize) -> Any:
        """Nothing special: Pillow decodes it like any other picture."""
        return None

    def warped(self, picture: Any, affine: Any) -> Any:
        """Each place of the result taken from where the matrix sends it."""
        height, width = picture.shape[:2]
        corners = affine @ np.array([[0, width, 0, width], [0, 0, height, height], [1, 1, 1, 1]])
        beyond = max(0.0, -float(corners.min()), *(corners.max(axis=1) - (width, height)).tolist())
        margin = min(math.ceil(beyond) + 1, width - 1, height - 1)
        padded = np.pad(picture, ((margin, margin), (margin, margin), (0, 0)), mode="reflect")
        offset = affine[:, 2] + margin + (affine[:, :2] @ (-0.5, -0.5)) + 0.5  # Pillow counts from a pixel's corner
        coefficients = (*affine[0, :2], offset[0], *affine[1, :2], offset[1])
        image = Image.fromarray(padded)
        turned = image.transform((width, height), Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR)
        return np.asarray(turned)

    def coloured(self, picture: Any, matrix: Any) -> Any:
        """Each colour multiplied by a matrix."""
        return np.asarray(Image.fromarray(picture).convert("RGB", tuple(matrix.ravel().tolist())))
