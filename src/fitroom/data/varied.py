"""A picture varied as an Augment says: one affine transform, one change of colours."""

import math
from typing import Any

import numpy as np

from fitroom.data.augment import Augment
from fitroom.data.pixels import pixels

_LUMINANCE = np.array([0.299, 0.587, 0.114])


def varied(picture: Any, augment: Augment, random: Any) -> Any:
    """A picture (uint8, square) changed by what is drawn from `random`; always as many numbers, whatever is off."""
    flip, zoom, place_x, place_y, shear, rotation, brightness, contrast, saturation = random.uniform(-1, 1, 9)
    mirrored = augment.flip and flip < 0
    if augment.zoom or augment.shear or augment.rotation:
        turned = _turned(
            mirrored=mirrored,
            angle=math.radians(augment.rotation * rotation),
            shear=math.radians(augment.shear * shear),
            scale=(1 + augment.zoom) ** -zoom,
        )
        picture = pixels().warped(picture, _placed(turned, len(picture), np.array([place_x, place_y])))
    elif mirrored:
        picture = np.ascontiguousarray(picture[:, ::-1])
    if augment.colour:
        factors = (1 + augment.colour * drawn for drawn in (brightness, contrast, saturation))
        picture = pixels().coloured(picture, _colours(float(picture[::4, ::4].mean()), *factors))
    return picture


def _turned(*, mirrored: bool, angle: float, shear: float, scale: float) -> Any:
    """From a place in the new picture to the one it is taken from, both counted from the middle."""
    rotation = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return scale * rotation @ np.array([[1.0, math.tan(shear)], [0.0, 1.0]]) @ np.diag([-1.0 if mirrored else 1.0, 1.0])


def _placed(turned: Any, size: int, place: Any) -> Any:
    """The same counted from the first pixel; a view smaller than the picture is moved about in it."""
    half = (size - 1) / 2
    reach = np.abs(turned).sum(axis=1) * half
    middle = half + place * np.maximum(half - reach, 0)
    return np.column_stack([turned, middle - turned @ (half, half)])


def _colours(mean: float, brightness: float, contrast: float, saturation: float) -> Any:
    grey = (1 - saturation) * np.tile(_LUMINANCE, (3, 1)) + saturation * np.eye(3)
    offset = np.full((3, 1), brightness * (1 - contrast) * mean)
    return np.hstack([brightness * contrast * grey, offset])
