"""Who does the work on pixels: OpenCV where it is installed, which is several times faster, and Pillow where not.

Both do the same to a picture, up to rounding; so a run that goes on wants the one that it began with.
"""

from functools import cache
from typing import Any, Protocol

from fitroom.data.settings import Resize


class Pixels(Protocol):
    """Work on arrays of uint8, (height, width, 3)."""

    name: str
    version: str

    def jpeg(self, data: bytes, scale: int, image_size: int, resize: Resize) -> Any:
        """A JPEG decoded at 1/`scale` and resized; None where Pillow is to do it."""

    def warped(self, picture: Any, affine: Any) -> Any:
        """Each place of the result taken from where the 2 x 3 matrix sends it; beyond the border, reflected."""

    def coloured(self, picture: Any, matrix: Any) -> Any:
        """Each colour multiplied by a 3 x 4 matrix, whose last column is added."""


@cache
def pixels() -> Pixels:
    """The best that is installed."""
    try:
        from fitroom.data.opencv import OpenCV
    except ImportError:
        from fitroom.data.pillow import Pillow

        return Pillow()
    return OpenCV()
