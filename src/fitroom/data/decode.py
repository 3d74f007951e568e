"""Bytes of a file to a picture of the size asked for: uint8, three colours, upright."""

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fitroom.data.opening import LARGEST_BYTES, BadPictureError, Header, check_memory, opened, orientation_of, reason
from fitroom.data.pixels import pixels
from fitroom.data.room import Room
from fitroom.data.settings import Resize
from fitroom.data.shape import inner_size, square_box
from fitroom.units import format_bytes

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ROOM = Room(2 * LARGEST_BYTES)


def read_bytes(path: Path) -> bytes:
    """A file's content. Raises BadPictureError where it cannot be read."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            os.close(os.open(path, os.O_RDONLY))  # says why it was not entered
        _check_regular(mode)  # before it is opened, which for some devices is an action
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(handle, "rb", buffering=0) as file:
            known = os.fstat(handle)
            _check_regular(known.st_mode)
            if known.st_size > LARGEST_BYTES:
                raise BadPictureError(f"too large: a file of {format_bytes(known.st_size)}")
            return file.read()
    except PermissionError as error:
        what = "a folder that cannot be entered" if os.path.isdir(path) else "cannot be read"
        raise BadPictureError(f"{what}: {(error.strerror or reason(error)).lower()}") from error
    except OSError as error:
        raise BadPictureError(f"cannot be read: {(error.strerror or reason(error)).lower()}") from error


def _check_regular(mode: int) -> None:
    """Raise BadPictureError for what would never end, or is no content at all."""
    kinds = {
        stat.S_IFIFO: "a pipe",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
        stat.S_IFDIR: "a folder that cannot be entered",
    }
    if not stat.S_ISREG(mode):
        raise BadPictureError(f"{kinds.get(stat.S_IFMT(mode), 'something else')}, not a file")


def verified(data: bytes) -> Header:
    """The header of a picture that decodes to its end: a JPEG at an eighth of its scale, which reads all of it too."""
    image, header = opened(data)
    _made(image, header, 1, "crop")
    return header


def decoded(data: bytes, header: Header, image_size: int, resize: Resize) -> Any:
    """A verified picture as an array, uint8 (image_size, image_size, 3). Raises BadPictureError."""
    scale = check_fits(header, image_size, resize)
    if header.is_jpeg and header.mode in ("RGB", "L"):
        with _ROOM.lent(header.memory_bytes(scale)):
            found = pixels().jpeg(data, scale, image_size, resize)
        if found is not None:
            turn = _TURNS.get(header.orientation)
            return found if turn is None else np.asarray(Image.fromarray(found).transpose(turn))
    return np.asarray(image_of(data, image_size, resize))


def image_of(data: bytes, image_size: int, resize: Resize) -> Any:
    """A file's content as a Pillow image of mode RGB and of the size asked for. Raises BadPictureError."""
    return _made(*opened(data), image_size, resize)


def check_fits(header: Header, image_size: int, resize: Resize) -> int:
    """The scale to decode at: 1, or 2, 4, 8 times smaller. Raises BadPictureError where that takes too much memory."""
    whole = resize in ("pad", "whole")
    needed = inner_size(header.width, header.height, image_size) if whole else (image_size, image_size)
    scale = header.scale(*needed)
    check_memory(header, scale)
    return scale


def _made(image: Any, header: Header, image_size: int, resize: Resize) -> Any:
    scale = check_fits(header, image_size, resize)
    with _ROOM.lent(header.memory_bytes(scale)):
        try:
            if scale > 1:
                image.draft(None, (header.width // scale, header.height // scale))
            resized = _fitted(image, image_size, resize)
            turn = _TURNS.get(orientation_of(image))
            return resized if turn is None else resized.transpose(turn)
        except MemoryError:
            raise
        except Exception as error:  # a broken file may fail anywhere in a decoder, with any error
            raise BadPictureError(f"broken: {reason(error)}") from error


def _fitted(image: Any, image_size: int, resize: Resize) -> Any:
    """A decoded picture brought to a square in RGB: its middle, all of it on black, or all of it out of shape."""
    image = _resizable(image)
    width, height = image.size
    if resize in ("pad", "whole"):
        inner = inner_size(width, height, image_size)
        small = _in_colour(image.resize(inner, Image.Resampling.BILINEAR))
        if resize == "whole":
            return small
        square = Image.new("RGB", (image_size, image_size))
        corner = ((image_size - inner[0]) // 2, (image_size - inner[1]) // 2)
        square.paste(small, corner)
        return square
    box = square_box(width, height) if resize == "crop" else None
    return _in_colour(image.resize((image_size, image_size), Image.Resampling.BILINEAR, box=box))


def _resizable(image: Any) -> Any:
    """In a mode whose pixels can be averaged."""
    image.load()
    if image.mode.startswith(("I", "F")):
        return Image.fromarray(_eight_bits(np.asarray(image), image.mode))
    if "transparency" in image.info or image.mode in ("PA", "LA", "La", "RGBa"):
        return image.convert("RGBA")
    if image.mode in ("P", "1"):
        return image.convert("RGB")
    return image


def _in_colour(image: Any) -> Any:
    """In RGB; what is transparent is white."""
    if image.mode == "RGBA":
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(values: Any, mode: str) -> Any:
    """Grey values of 16 or 32 bits, or fractions, from the range that they are written in."""
    values = np.nan_to_num(values.astype("float32"))
    largest = float(values.max())
    ranges = {"I": (255.0, 65535.0), "F": (1.0, 255.0, 65535.0)}.get(mode, (65535.0,))
    top = next((top for top in ranges if largest <= top), largest)
    return (np.clip(values, 0, top) * (255.0 / top)).astype("uint8")
