"""Decoding of image files: to uint8 RGB of the requested size, turned upright."""

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fitroom.data.host_memory import MemoryPool
from fitroom.data.opening import LARGEST_BYTES, BadImageError, Header, check_memory, open_image, orientation_of, reason
from fitroom.data.pixels import choose_pixel_library, inner_size, square_box
from fitroom.data.settings import Resize
from fitroom.units import format_bytes

_TRANSPOSITIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_DECODING = MemoryPool(2 * LARGEST_BYTES)


def read_bytes(path: Path) -> bytes:
    """The content of a file. Raises BadImageError where it cannot be read."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            os.close(os.open(path, os.O_RDONLY))  # raises the reason why it cannot be entered
        _check_regular(mode)  # before opening it, which has effects on some devices
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(handle, "rb", buffering=0) as file:
            known = os.fstat(handle)
            _check_regular(known.st_mode)
            if known.st_size > LARGEST_BYTES:
                raise BadImageError(f"too large: a file of {format_bytes(known.st_size)}")
            return file.read()
    except PermissionError as error:
        what = "a folder that cannot be entered" if os.path.isdir(path) else "cannot be read"
        raise BadImageError(f"{what}: {(error.strerror or reason(error)).lower()}") from error
    except OSError as error:
        raise BadImageError(f"cannot be read: {(error.strerror or reason(error)).lower()}") from error


def _check_regular(mode: int) -> None:
    """Raise BadImageError for a pipe, device, socket or folder: reading one may block or never end."""
    kinds = {
        stat.S_IFIFO: "a pipe",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
        stat.S_IFDIR: "a folder that cannot be entered",
    }
    if not stat.S_ISREG(mode):
        raise BadImageError(f"{kinds.get(stat.S_IFMT(mode), 'something else')}, not a file")


def verify_image(data: bytes) -> Header:
    """Decode an image to its end and return its header. A JPEG is decoded at 1/8 scale, which reads all of it too."""
    image, header = open_image(data)
    _decode(image, header, 1, "crop")
    return header


def decode_image(data: bytes, header: Header, image_size: int, resize: Resize) -> Any:
    """Decode a verified image to an array, uint8 (image_size, image_size, 3). Raises BadImageError."""
    scale = check_fits(header, image_size, resize)
    if header.is_jpeg and header.mode in ("RGB", "L"):
        with _DECODING.reserve(header.memory_bytes(scale)):
            found = choose_pixel_library().decode_jpeg(data, scale, image_size, resize)
        if found is not None:
            transposition = _TRANSPOSITIONS.get(header.orientation)
            return found if transposition is None else np.asarray(Image.fromarray(found).transpose(transposition))
    return np.asarray(decode_pillow(data, image_size, resize))


def decode_pillow(data: bytes, image_size: int, resize: Resize) -> Any:
    """Decode a file's content to a Pillow image in RGB of the requested size. Raises BadImageError."""
    return _decode(*open_image(data), image_size, resize)


def check_fits(header: Header, image_size: int, resize: Resize) -> int:
    """The factor to reduce by while decoding: 1, 2, 4 or 8. Raises BadImageError where that takes too much memory."""
    whole = resize in ("pad", "whole")
    needed = inner_size(header.width, header.height, image_size) if whole else (image_size, image_size)
    scale = header.scale(*needed)
    check_memory(header, scale)
    return scale


def _decode(image: Any, header: Header, image_size: int, resize: Resize) -> Any:
    scale = check_fits(header, image_size, resize)
    with _DECODING.reserve(header.memory_bytes(scale)):
        try:
            if scale > 1:
                image.draft(None, (header.width // scale, header.height // scale))
            resized = _fit(image, image_size, resize)
            transposition = _TRANSPOSITIONS.get(orientation_of(image))
            return resized if transposition is None else resized.transpose(transposition)
        except MemoryError:
            raise
        except Exception as error:  # a broken file can fail anywhere in a decoder, with any error
            raise BadImageError(f"broken: {reason(error)}") from error


def _fit(image: Any, image_size: int, resize: Resize) -> Any:
    """Bring an image to a square in RGB: "crop" takes its middle, "pad" puts it on black, "stretch" distorts it."""
    image = _convert_for_resizing(image)
    width, height = image.size
    if resize in ("pad", "whole"):
        inner = inner_size(width, height, image_size)
        small = _convert_to_rgb(image.resize(inner, Image.Resampling.BILINEAR))
        if resize == "whole":
            return small
        square = Image.new("RGB", (image_size, image_size))
        corner = ((image_size - inner[0]) // 2, (image_size - inner[1]) // 2)
        square.paste(small, corner)
        return square
    box = square_box(width, height) if resize == "crop" else None
    return _convert_to_rgb(image.resize((image_size, image_size), Image.Resampling.BILINEAR, box=box))


def _convert_for_resizing(image: Any) -> Any:
    """Convert an image to a mode whose pixels can be averaged."""
    image.load()
    if image.mode.startswith(("I", "F")):
        return Image.fromarray(_scale_to_8_bits(np.asarray(image), image.mode))
    if "transparency" in image.info or image.mode in ("PA", "LA", "La", "RGBa"):
        return image.convert("RGBA")
    if image.mode in ("P", "1"):
        return image.convert("RGB")
    return image


def _convert_to_rgb(image: Any) -> Any:
    """Convert an image to RGB, with white behind what is transparent."""
    if image.mode == "RGBA":
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _scale_to_8_bits(values: Any, mode: str) -> Any:
    """Scale grey values of 16 or 32 bits, or floats, to 8 bits from the smallest usual range that holds them."""
    values = np.nan_to_num(values.astype("float32"))
    largest = float(values.max())
    ranges = {"I": (255.0, 65535.0), "F": (1.0, 255.0, 65535.0)}.get(mode, (65535.0,))
    top = next((top for top in ranges if largest <= top), largest)
    return (np.clip(values, 0, top) * (255.0 / top)).astype("uint8")
