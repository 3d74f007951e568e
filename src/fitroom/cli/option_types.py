"""Types of command-line options: numbers, batch sizes, image sizes, remat choices."""

import math
import re
from typing import Any

import click

from fitroom.classify.options import AUTO
from fitroom.distribution.selection import DeviceSelection
from fitroom.errors import FitroomError
from fitroom.planning.plan import MAX
from fitroom.recipe import REMAT_NAMES, Remat

_DIGITS = re.compile(r"\s*\d{1,10}\s*")


_MAX_BATCH = 2**31 - 1
"""Frameworks count the samples of a batch in 32 bits."""


class WholeNumber(click.IntRange):
    """A whole number of at least `min`, and at most `max` where there is one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse the number."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            bounds = f"of at least {self.min}" if self.max is None else f"from {self.min} to {self.max:,}"
            self.fail(f"must be a whole number {bounds}. Received: {str(value)!r}.", param, ctx)


class Number(click.FloatRange):
    """A finite number within bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the number."""
        try:
            number = float(super().convert(value, param, ctx))
        except click.BadParameter:
            number = math.nan
        if not math.isfinite(number):
            lowest = f"{'above' if self.min_open else 'of at least'} {self.min}"
            bounds = (
                lowest if self.max is None else f"{lowest} and {'below' if self.max_open else 'at most'} {self.max}"
            )
            self.fail(f"must be a number {bounds}. Received: {str(value)!r}.", param, ctx)
        return number


class BatchSizes(click.ParamType):  # type: ignore[type-arg]
    """`64` or `16,32,64`: positive whole numbers, in the order typed, without duplicates."""

    name = "batch size"

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Parse the sizes."""
        if isinstance(value, tuple):
            return value
        sizes = []
        for word in value.split(","):
            size = int(word) if _DIGITS.fullmatch(word) else 0
            if not 1 <= size <= _MAX_BATCH:
                self.fail(
                    f"{value!r} must be a whole number from 1 to {_MAX_BATCH:,}, or several with commas: 16,32,64",
                    param,
                    ctx,
                )
            sizes.append(size)
        return tuple(dict.fromkeys(sizes))


class BatchSizeOrMax(click.ParamType):  # type: ignore[type-arg]
    """`64`, or `max`."""

    name = "batch size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Parse the size, or the word."""
        word = str(value).strip().lower()
        if word == MAX:
            return MAX
        size = int(word) if _DIGITS.fullmatch(word) else 0
        if not 1 <= size <= _MAX_BATCH:
            self.fail(f"{value!r} must be a whole number from 1 to {_MAX_BATCH:,}, or {MAX}", param, ctx)
        return size


class PixelsOrAuto(click.ParamType):  # type: ignore[type-arg]
    """`299`, or `auto` where the planner may choose the size."""

    name = "pixels"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Parse the size, or the word."""
        word = str(value).strip().lower()
        if word != AUTO and not (word.isdecimal() and int(word) >= 1):
            self.fail(f"{value!r} must be a whole number of at least 1, or {AUTO}", param, ctx)
        return AUTO if word == AUTO else int(word)


class DevicesChoice(click.ParamType):  # type: ignore[type-arg]
    """`all`, a number of devices such as `4`, or device numbers such as `0,1`."""

    name = "devices"

    def convert(
        self, value: str | DeviceSelection, param: click.Parameter | None, ctx: click.Context | None
    ) -> DeviceSelection:
        """Parse the selection."""
        try:
            return DeviceSelection.of(value)
        except FitroomError as error:
            self.fail(f"{error.message} Expected: {error.hint}", param, ctx)


class RematChoice(click.ParamType):  # type: ignore[type-arg]
    """`none`, `blocks`, or a limit such as `6GiB`."""

    name = "remat"

    def convert(self, value: str | Remat, param: click.Parameter | None, ctx: click.Context | None) -> str | Remat:
        """Parse the choice, as `fitroom.Recipe` takes it."""
        if isinstance(value, Remat) or value.lower() in REMAT_NAMES:
            return value if isinstance(value, Remat) else value.lower()
        try:
            return Remat(budget=value)
        except FitroomError:
            self.fail(f"{value!r} must be {', '.join(REMAT_NAMES)}, or a limit such as 6GiB", param, ctx)
