"""Sizes in bytes as people write and read them. Inside fitroom a size is an `int` of bytes; text is for the edge."""

import re

from fitroom.errors import InputError

_FACTORS = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_bytes(text: str | int) -> int:
    """Read a size in bytes. GiB and MiB are powers of 1024, GB and MB of 1000.

    >>> parse_bytes("12GiB"), parse_bytes("12 GB"), parse_bytes(4096)
    (12884901888, 12000000000, 4096)
    """
    match = _SIZE.fullmatch(str(text)) if isinstance(text, int | str) else None
    factor = _FACTORS.get(match[2].lower()) if match else None
    size_bytes = int(float(match[1]) * factor) if match and factor else 0
    if size_bytes <= 0:
        raise InputError(
            f"A size must be a positive number with a unit. Received: {text!r}.",
            hint="write it as '12GiB' (1024^3), '12GB' (1000^3), '12000MB', or plain bytes",
        )
    return size_bytes


def format_bytes(size_bytes: int | None) -> str:
    """Write a size for people, in powers of 1024.

    >>> format_bytes(15_581_120_652), format_bytes(512), format_bytes(None)
    ('14.51 GiB', '512 B', 'unknown')
    """
    if size_bytes is None:
        return "unknown"
    for factor, unit in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
        if abs(size_bytes) >= factor:
            digits = 2 if unit == "GiB" else 1
            return f"{size_bytes / factor:,.{digits}f} {unit}"
    return f"{size_bytes} B"


def used_of(used_bytes: int, limit_bytes: int) -> str:
    """Write one size out of another, with the unit once where it is the same.

    >>> used_of(7 * 1024**3, 8 * 1024**3), used_of(300 * 1024**2, 1024**3)
    ('7.00 of 8.00 GiB', '300.0 MiB of 1.00 GiB')
    """
    used, limit = format_bytes(used_bytes), format_bytes(limit_bytes)
    return f"{used.removesuffix(limit[limit.index(' ') :])} of {limit}"
