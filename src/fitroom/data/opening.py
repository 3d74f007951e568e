"""A file opened as a picture, known by its content whatever it is called, and refused before it takes the memory."""

import io
import warnings
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from PIL import Image

from fitroom.units import format_bytes

LARGEST_BYTES = 256 * 1024**2
"""Of memory to decode one picture. 64 million pixels, and JPEG of far more: it is decoded at reduced scale."""

_ORIENTATION = 0x0112
_FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000", "HEIF")

_OTHERS = (
    (b"<!DOCTYPE html", "a web page, not a picture"),
    (b"<html", "a web page, not a picture"),
    (b"<svg", "an SVG drawing, which has no pixels"),
    (b"<?xml", "an XML file, not a picture"),
    (b"%PDF", "a PDF document, not a picture"),
    (b"PK\x03\x04", "a ZIP archive, not a picture"),
)


class BadPictureError(Exception):
    """A file that is no picture, or a broken one. The text is the reason."""


@dataclass(frozen=True)
class Header:
    """What the beginning of a picture says."""

    format: str
    mode: str
    """Pillow's word for its colours."""

    width: int
    height: int
    progressive: int
    """1 for a JPEG that comes in several passes, else 0."""

    orientation: int = 1
    """Of a JPEG: how it is to be turned, as EXIF counts; 1 is upright. Others say so once they are decoded."""

    @property
    def is_jpeg(self) -> bool:
        """Whether it can be decoded at reduced scale; phones write several in one file."""
        return self.format in ("JPEG", "MPO")

    def scale(self, width: int, height: int) -> int:
        """8, 4, 2 or 1: by how much it may be reduced while it is decoded and still cover a size."""
        most = min(self.width // width, self.height // height) if self.is_jpeg else 1
        return next((scale for scale in (8, 4, 2) if scale <= most), 1)

    def memory_bytes(self, scale: int) -> int:
        """Of the decoded picture, and of the coefficients that a progressive JPEG keeps whole."""
        pixels = self.width * self.height
        return 4 * (-(-pixels // scale**2)) + (6 * pixels if self.progressive else 0)


def opened(data: bytes) -> tuple[Any, Header]:
    """A Pillow image that is not decoded yet, and its header. Raises BadPictureError."""
    if not data:
        raise BadPictureError("empty file")
    image = _recognised(data)
    if image is None:
        raise BadPictureError(_described(data))
    width, height = image.size
    if width < 1 or height < 1:
        raise BadPictureError(f"broken: {width} x {height} pixels")
    header = Header(str(image.format), image.mode, width, height, int(bool(image.info.get("progressive"))))
    return image, replace(header, orientation=orientation_of(image)) if header.is_jpeg else header


def check_memory(header: Header, scale: int) -> None:
    """Raise BadPictureError for a picture that would take too much memory: a mistake, or a decompression bomb."""
    needed = header.memory_bytes(scale)
    if needed > LARGEST_BYTES:
        raise BadPictureError(
            f"too large: {header.width:,} x {header.height:,} pixels take {format_bytes(needed)} to decode, "
            f"more than {format_bytes(LARGEST_BYTES)}"
        )


def _recognised(data: bytes) -> Any:
    """What `Image.open` gives, without its limit on pixels: that knows nothing of reduced scale."""
    broken: Exception | None = None
    for accept, factory in _plugins():
        if accept is None or accept(data[:16]) is True:
            try:
                return factory(io.BytesIO(data), "")
            except MemoryError:
                raise
            except Exception as error:  # which, is up to the file
                broken = error
    if broken is None:
        return None
    raise BadPictureError(f"broken: {reason(broken)}") from broken


@cache
def _plugins() -> list[tuple[Any, Any]]:
    Image.init()
    # What Pillow says of damaged metadata is not about pixels. At the end of the list: filters of others come first.
    warnings.filterwarnings("ignore", module=r"PIL\.", append=True)
    return [(Image.OPEN[name][1], Image.OPEN[name][0]) for name in _FORMATS if name in Image.OPEN]


def _described(data: bytes) -> str:
    beginning = data[:256].lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    if data[4:8] == b"ftyp" and data[8:12] in (b"heic", b"heix", b"mif1", b"hevc"):
        return "a HEIC photo, which Pillow cannot read: convert it to JPEG"
    for start, words in _OTHERS:
        if beginning.startswith(start.lower()):
            return words
    if data.count(0, 0, 1024) == min(len(data), 1024):
        return "broken: nothing but zeros"
    return "not a picture"


def orientation_of(image: Any) -> int:
    """How an image is to be turned, as EXIF counts. Except for a JPEG, this decodes it."""
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged EXIF is no reason to lose the picture
        return 1


def reason(error: BaseException) -> str:
    """An error in few words."""
    text = str(error).strip().split("\n")[0].rstrip(".")
    return (text[:1].lower() + text[1:160]) if text else type(error).__name__
