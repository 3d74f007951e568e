"""A picture varied as an Augment says: one affine transform, one change of colours."""

import math
from typing import Any

import numpy as np
from PIL import Image

from fitroom.data.augment import Augment

_LUMINANCE = (0.299, 0.587, 0.114)


def varied(picture: Any, augment: Augment, random: Any) -> Any:
    """A picture (uint8, square) changed by what is drawn from `random`; always as many numbers, whatever is off."""
    flip, zoom, place_x, place_y, shear, rotation, brightness, contrast, saturation = random.uniform(-1, 1, 9)
    matrix = _matrix(augment, flip=flip, zoom=zoom, shear=shear, rotation=rotation)
    if not np.array_equal(matrix, np.eye(2)):
        picture = _transformed(picture, matrix, np.array([place_x, place_y]))
    if augment.colour:
        picture = _coloured(picture, *(1 + augment.colour * drawn for drawn in (brightness, contrast, saturation)))
    return picture


def _matrix(augment: Augment, *, flip: float, zoom: float, shear: float, rotation: float) -> Any:
    """From a place in the new picture to the one it is taken from, both counted from the middle."""
    angle = math.radians(augment.rotation * rotation)
    scale = (1 + augment.zoom) ** -zoom
    turned = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    sheared = np.array([[1.0, math.tan(math.radians(augment.shear * shear))], [0.0, 1.0]])
    mirrored = np.diag([-1.0 if augment.flip and flip < 0 else 1.0, 1.0])
    return scale * turned @ sheared @ mirrored


def _transformed(picture: Any, matrix: Any, place: Any) -> Any:
    size = len(picture)
    half = size / 2
    reach = np.abs(matrix).sum(axis=1) * half  # how far from its middle the new picture looks, in x and in y
    middle = half + place * np.maximum(half - reach, 0)
    margin = min(math.ceil(max(0.0, float((reach - half).max()))) + 1, size - 1)
    padded = np.pad(picture, ((margin, margin), (margin, margin), (0, 0)), mode="reflect") if margin > 1 else picture
    offset = middle - matrix @ np.array([half, half]) + (margin if margin > 1 else 0)
    coefficients = (*matrix[0], offset[0], *matrix[1], offset[1])
    image = Image.fromarray(padded)
    return np.asarray(image.transform((size, size), Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR))


def _coloured(picture: Any, brightness: float, contrast: float, saturation: float) -> Any:
    mean = float(picture[::4, ::4].mean())
    rows = []
    for channel in range(3):
        for other, weight in enumerate(_LUMINANCE):
            own = saturation if channel == other else 0.0
            rows.append(brightness * contrast * (own + (1 - saturation) * weight))
        rows.append(brightness * (1 - contrast) * mean)
    return np.asarray(Image.fromarray(picture).convert("RGB", tuple(rows)))
