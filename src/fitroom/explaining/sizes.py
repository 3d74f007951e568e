"""Sizes, shapes and names as frameworks print them."""

import math
import re

_SIZE = re.compile(r"([\d.,]+)\s?([A-Za-z]*)")
_FACTORS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_BYTES_PER_VALUE = {
    **dict.fromkeys(("float", "float32", "int32", "uint32", "f32", "s32", "u32"), 4),
    **dict.fromkeys(("double", "float64", "int64", "uint64", "complex64", "f64", "s64"), 8),
    **dict.fromkeys(("half", "float16", "bfloat16", "int16", "uint16", "f16", "bf16"), 2),
    **dict.fromkeys(("bool", "int8", "uint8", "pred", "s8", "u8"), 1),
    **dict.fromkeys(("complex128", "c128"), 16),
}


def read_size(text: str | None) -> int | None:
    """Read a size as a framework prints it. All count in powers of 1024, also those that write "GB" (MPS) or "G" (XLA).

    >>> read_size("1.50 GiB"), read_size("294.00MiB"), read_size("21.87G"), read_size("524288"), read_size("0 bytes")
    (1610612736, 308281344, 23482733690, 524288, 0)
    """
    match = _SIZE.search(text or "")
    if not match:
        return None
    number, unit = match[1].replace(",", "").rstrip("."), match[2].lower()
    factor = _FACTORS.get(unit[:1]) if unit not in ("bytes", "byte") else 1
    try:
        return None if factor is None else int(float(number) * factor)
    except ValueError:  # "1.2.3"
        return None


def read_shape(text: str | None) -> tuple[int, ...] | None:
    """Read a shape.

    >>> read_shape("16,128,128,96"), read_shape("")
    ((16, 128, 128, 96), ())
    """
    if text is None:
        return None
    return tuple(int(number) for number in re.findall(r"\d+", text))


def count_bytes(shape: tuple[int, ...] | None, dtype: str | None) -> int | None:
    """The bytes of an array; None where its type is not known.

    >>> count_bytes((32, 384, 56, 112), "float")
    308281344
    """
    size = _BYTES_PER_VALUE.get((dtype or "").strip("'\"<>=").lower())
    return None if shape is None or size is None else math.prod(shape) * size
