"""Opening of image files: the format is recognised by content, and an image too large is refused before decoding."""

import io
import warnings
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from PIL import Image

from fitroom.units import format_bytes

LARGEST_BYTES = 256 * 1024**2
"""The most memory to decode one image: 64 million pixels, or a JPEG of far more, which is decoded at reduced scale."""

_ORIENTATION = 0x0112
_FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000", "HEIF")

_OTHER_FORMATS = (
    (b"<!DOCTYPE html", "a web page, not an image"),
    (b"<html", "a web page, not an image"),
    (b"<svg", "an SVG drawing, which has no pixels"),
    (b"<?xml", "an XML file, not an image"),
    (b"%PDF", "a PDF document, not an image"),
    (b"PK\x03\x04", "a ZIP archive, not an image"),
)


class BadImageError(Exception):
    """A file is not an image, or a broken one. The text is the reason."""


@dataclass(frozen=True)
class Header:
    """What the header of an image file says."""

    format: str
    mode: str
    """Pillow's name of the pixel format."""

    width: int
    height: int
    progressive: int
    """1 for a progressive JPEG, else 0."""

    orientation: int = 1
    """The EXIF orientation of a JPEG; 1 is upright. Other formats give theirs only once they are decoded."""

    @property
    def is_jpeg(self) -> bool:
        """Whether it is a JPEG, which can be decoded at reduced scale; MPO, as phones write it, holds several."""
        return self.format in ("JPEG", "MPO")

    def scale(self, width: int, height: int) -> int:
        """The largest factor of 8, 4, 2 and 1 by which decoding can reduce it and still cover a size."""
        most = min(self.width // width, self.height // height) if self.is_jpeg else 1
        return next((scale for scale in (8, 4, 2) if scale <= most), 1)

    def memory_bytes(self, scale: int) -> int:
        """Memory of the decoded image, and of the coefficients of a progressive JPEG, which are not reduced."""
        pixels = self.width * self.height
        return 4 * (-(-pixels // scale**2)) + (6 * pixels if self.progressive else 0)


def open_image(data: bytes) -> tuple[Any, Header]:
    """Open a file's content as a Pillow image, not decoded yet, with its header. Raises BadImageError."""
    if not data:
        raise BadImageError("empty file")
    image = _recognise(data)
    if image is None:
        raise BadImageError(_describe(data))
    width, height = image.size
    if width < 1 or height < 1:
        raise BadImageError(f"broken: {width} x {height} pixels")
    header = Header(str(image.format), image.mode, width, height, int(bool(image.info.get("progressive"))))
    return image, replace(header, orientation=orientation_of(image)) if header.is_jpeg else header


def check_memory(header: Header, scale: int) -> None:
    """Raise BadImageError for an image that would take too much memory: a mistake, or a decompression bomb."""
    needed = header.memory_bytes(scale)
    if needed > LARGEST_BYTES:
        raise BadImageError(
            f"too large: {header.width:,} x {header.height:,} pixels take {format_bytes(needed)} to decode, "
            f"more than {format_bytes(LARGEST_BYTES)}"
        )


def _recognise(data: bytes) -> Any:
    """What `Image.open` gives, without its limit on pixels, which does not consider decoding at reduced scale."""
    broken: Exception | None = None
    for accept, factory in _plugins():
        if accept is None or accept(data[:16]) is True:
            try:
                return factory(io.BytesIO(data), "")
            except MemoryError:
                raise
            except Exception as error:  # decoders raise errors of any class
                broken = error
    if broken is None:
        return None
    raise BadImageError(f"broken: {reason(broken)}") from broken


@cache
def _plugins() -> list[tuple[Any, Any]]:
    Image.init()
    # Pillow warns of damaged metadata, which does not concern the pixels. Appended, so that the user's filters win.
    warnings.filterwarnings("ignore", module=r"PIL\.", append=True)
    return [(Image.OPEN[name][1], Image.OPEN[name][0]) for name in _FORMATS if name in Image.OPEN]


def _describe(data: bytes) -> str:
    """What a file is that is no image, for people."""
    beginning = data[:256].lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    if data[4:8] == b"ftyp" and data[8:12] in (b"heic", b"heix", b"mif1", b"hevc"):
        return "a HEIC photo, which Pillow cannot read: convert it to JPEG"
    for start, words in _OTHER_FORMATS:
        if beginning.startswith(start.lower()):
            return words
    if data.count(0, 0, 1024) == min(len(data), 1024):
        return "broken: all bytes are zero"
    return "not an image"


def orientation_of(image: Any) -> int:
    """The EXIF orientation of an image. Formats other than JPEG are decoded by this."""
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # an image with damaged EXIF data is usable
        return 1


def reason(error: BaseException) -> str:
    """The first line of an error's message, for use within a sentence."""
    text = str(error).strip().split("\n")[0].rstrip(".")
    return (text[:1].lower() + text[1:160]) if text else type(error).__name__
