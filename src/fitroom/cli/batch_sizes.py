"""Batch sizes as they are typed: one, or several with commas."""

import re

import click

from fitroom.planning.plan import MAX

_DIGITS = re.compile(r"\s*\d{1,10}\s*")


_MOST = 2**31 - 1
"""Frameworks count the samples of a batch in 32 bits."""


class BatchSizes(click.ParamType):  # type: ignore[type-arg]
    """`64` or `16,32,64`, each a positive whole number, in the order typed and each once."""

    name = "batch size"

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The sizes."""
        if isinstance(value, tuple):
            return value
        sizes = []
        for word in value.split(","):
            size = int(word) if _DIGITS.fullmatch(word) else 0
            if not 1 <= size <= _MOST:
                self.fail(
                    f"{value!r} must be a whole number from 1 to {_MOST:,}, or several with commas: 16,32,64",
                    param,
                    ctx,
                )
            sizes.append(size)
        return tuple(dict.fromkeys(sizes))


class BatchSizeOrMax(click.ParamType):  # type: ignore[type-arg]
    """`64`, or `max`."""

    name = "batch size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """The size, or the word."""
        word = str(value).strip().lower()
        if word == MAX:
            return MAX
        size = int(word) if _DIGITS.fullmatch(word) else 0
        if not 1 <= size <= _MOST:
            self.fail(f"{value!r} must be a whole number from 1 to {_MOST:,}, or {MAX}", param, ctx)
        return size
