"""Random augmentation of training images: its settings, and how one image is changed by them."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from fitroom.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Random changes to training images, drawn anew in each epoch from the seed, the epoch and the image's number.

    >>> Augment(rotation=0, colour=0.1).to_dict()
    {'flip': True, 'zoom': 0.2, 'shear': 5.0, 'rotation': 0, 'colour': 0.1}
    """

    flip: bool = True
    """Swap left and right in half of the images."""

    zoom: float = 0.2
    """Scale by up to this fraction; an enlarged image is cropped at a random place."""

    shear: float = 5.0
    """Shear by up to so many degrees."""

    rotation: float = 10.0
    """Rotate by up to so many degrees either way. Beyond the border the image is reflected."""

    colour: float = 0.2
    """Change brightness, contrast and saturation by up to this fraction each."""

    def __post_init__(self) -> None:
        if not isinstance(self.flip, bool):
            raise InputError(f"`flip` of an Augment must be True or False. Received: {self.flip!r}.")
        for name, most in (("zoom", 0.9), ("shear", 60), ("rotation", 180), ("colour", 0.9)):
            value = getattr(self, name)
            if not 0 <= value <= most:
                raise InputError(f"`{name}` of an Augment must be between 0 and {most}. Received: {value!r}.")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def parse_augment(value: Augment | bool | None) -> Augment | None:
    """The Augment that the argument `augment` stands for: True is the default one, False and None are none."""
    if value is None or isinstance(value, bool):
        return Augment() if value else None
    if not isinstance(value, Augment):
        raise InputError(
            f"`augment` must be True, None or a fitroom.data.Augment. Received: {value!r}.",
            hint="fitroom.data.Augment(rotation=15) changes one setting and keeps the other defaults",
        )
    return value


def augment_image(image: Any, augment: Augment, random: Any) -> Any:
    """Change a square uint8 image by what is drawn from `random`.

    As many numbers are drawn whatever is switched off, so that one setting does not change what the others draw.
    """
    import numpy as np

    from fitroom.data.pixels import choose_pixel_library

    pixels = choose_pixel_library()
    flip, zoom, place_x, place_y, shear, rotation, brightness, contrast, saturation = random.uniform(-1, 1, 9)
    mirrored = augment.flip and flip < 0
    if augment.zoom or augment.shear or augment.rotation:
        view = _view_matrix(
            mirrored=mirrored,
            angle=math.radians(augment.rotation * rotation),
            shear=math.radians(augment.shear * shear),
            scale=(1 + augment.zoom) ** -zoom,
        )
        image = pixels.warp(image, _pixel_matrix(view, len(image), np.array([place_x, place_y])))
    elif mirrored:
        image = np.ascontiguousarray(image[:, ::-1])
    if augment.colour:
        factors = (1 + augment.colour * drawn for drawn in (brightness, contrast, saturation))
        image = pixels.transform_colours(image, _colour_matrix(float(image[::4, ::4].mean()), *factors))
    return image


def _view_matrix(*, mirrored: bool, angle: float, shear: float, scale: float) -> Any:
    """The 2 x 2 matrix from a place in the new image to its place in the old one, both counted from the middle."""
    import numpy as np

    rotation = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return scale * rotation @ np.array([[1.0, math.tan(shear)], [0.0, 1.0]]) @ np.diag([-1.0 if mirrored else 1.0, 1.0])


def _pixel_matrix(view: Any, size: int, place: Any) -> Any:
    """The 2 x 3 matrix of a view with places counted from the first pixel.

    A view smaller than the image is shifted within it by `place`, from -1 to 1 in both directions.
    """
    import numpy as np

    half = (size - 1) / 2
    reach = np.abs(view).sum(axis=1) * half
    middle = half + place * np.maximum(half - reach, 0)
    return np.column_stack([view, middle - view @ (half, half)])


def _colour_matrix(mean: float, brightness: float, contrast: float, saturation: float) -> Any:
    """The 3 x 4 matrix that changes brightness, contrast (around the image's mean) and saturation by these factors."""
    import numpy as np

    luminance = np.array([0.299, 0.587, 0.114])
    grey = (1 - saturation) * np.tile(luminance, (3, 1)) + saturation * np.eye(3)
    offset = np.full((3, 1), brightness * (1 - contrast) * mean)
    return np.hstack([brightness * contrast * grey, offset])
