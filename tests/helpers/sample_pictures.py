"""Folders of small pictures for tests: real files, drawn here, the broken ones among them."""

import io
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"daisy": (240, 240, 200), "rose": (200, 30, 60), "tulip": (220, 120, 20)}


def drawn(seed, size=(24, 20), colour=(128, 128, 128)):
    """A picture like no other with another seed."""
    noise = np.random.default_rng(seed).integers(-40, 40, (size[1], size[0], 3))
    return Image.fromarray((np.array(colour) + noise).clip(0, 255).astype("uint8"))


def encoded(image, form="JPEG", **options):
    """An image as the bytes of a file."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def class_folders(folder, counts, **options):
    """A folder per class with so many JPEG files each."""
    for label, count in counts.items():
        (folder / label).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            seed = zlib.crc32(f"{label}/{number}".encode())
            image = drawn(seed, colour=COLOURS.get(label, (90, 90, 90)), **options)
            (folder / label / f"{number:03}.jpg").write_bytes(encoded(image, quality=90))
    return folder


def huge_png(width, height):
    """A PNG of a few bytes that says it has many pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


def good_but_odd():
    """Name and content of files that are pictures, whatever they look like."""
    image = drawn(1)
    exif = Image.Exif()
    exif[0x0112] = 6
    sixteen = Image.fromarray((np.arange(480, dtype="uint16") * 130).reshape(20, 24))
    return {
        "really_a_png.jpg": encoded(image, "PNG"),
        "really_a_webp.jpg": encoded(image, "WEBP"),
        "really_a_gif.jpg": encoded(image, "GIF"),
        "really_a_bmp.jpg": encoded(image, "BMP"),
        "really_a_jpeg.png": encoded(image, "JPEG"),
        "without_suffix": encoded(image, "JPEG", quality=70),
        "CAPITALS.JPEG": encoded(image, "JPEG", quality=71),
        "tiff.tif": encoded(image, "TIFF"),
        "cmyk.jpg": encoded(image.convert("CMYK"), "JPEG"),
        "grey.jpg": encoded(image.convert("L"), "JPEG"),
        "progressive.jpg": encoded(image, "JPEG", progressive=True),
        "sixteen_bit.png": encoded(sixteen, "PNG"),
        "fractions.tif": encoded(Image.fromarray(np.linspace(0, 1, 480, dtype="float32").reshape(20, 24)), "TIFF"),
        "palette.png": encoded(image.convert("P"), "PNG"),
        "transparent_palette.png": encoded(image.convert("P"), "PNG", transparency=3),
        "alpha.png": encoded(image.convert("RGBA"), "PNG"),
        "grey_alpha.png": encoded(image.convert("LA"), "PNG"),
        "one_bit.png": encoded(image.convert("1"), "PNG"),
        "animated.gif": encoded(image, "GIF", save_all=True, append_images=[drawn(2), drawn(3)]),
        "turned.jpg": encoded(image, "JPEG", exif=exif),
        "one_pixel.png": encoded(image.resize((1, 1)), "PNG"),
        "花 🌼 цветок.jpg": encoded(image, "JPEG", quality=72),
        "bad_exif.jpg": _with_broken_exif(encoded(image, "JPEG", exif=exif)),
    }


def bad():
    """Name, content and a part of the reason for files that are not to be trained on."""
    image = drawn(4, (200, 160))
    jpeg, png = encoded(image, "JPEG"), encoded(image, "PNG")
    return {
        "empty.jpg": (b"", "empty file"),
        "truncated.jpg": (jpeg[: len(jpeg) // 2], "truncated"),
        "truncated.png": (png[: len(png) // 2], "truncated"),
        "only_a_beginning.jpg": (jpeg[:12], "broken"),
        "damaged.png": (_with_broken_stream(png), "broken"),
        "truncated.webp": (encoded(image, "WEBP")[:200], "broken"),
        "truncated.gif": (encoded(image, "GIF")[:2000], "broken"),
        "web_page.jpg": (b"<!DOCTYPE html><html>404 Not Found</html>", "web page"),
        "notes.txt": (b"remember the tulips\n", "not an image"),
        "zeros.jpg": (b"\0" * 5000, "all bytes are zero"),
        "vector.svg": (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
        "phone.heic": (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"\0" * 50, "HEIC"),
        "bomb.png": (huge_png(60_000, 60_000), "too large"),
        "archive.jpg": (b"PK\x03\x04" + b"\0" * 40, "ZIP"),
    }


def write_all(folder, files):
    """Files by name and content."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        Path(folder / name).write_bytes(data)


def _with_broken_exif(data):
    at = data.index(b"Exif\0\0") + 6
    return data[:at] + b"\xff" * 8 + data[at + 8 :]


def _with_broken_stream(png):
    at = png.index(b"IDAT") + 4
    return png[:at] + b"\xff" * 16 + png[at + 16 :]


def without_opencv(monkeypatch):
    """As on a machine where it is not installed."""
    from fitroom.data.pixels import choose_pixel_library

    monkeypatch.setitem(sys.modules, "cv2", None)
    choose_pixel_library.cache_clear()
