"""What `--image-size` may be where the planner has a say in it: a number of pixels, or `auto`."""

import click

from fitroom.classify.options import AUTO


class PixelsOrAuto(click.ParamType):  # type: ignore[type-arg]
    """`299`, or `auto`."""

    name = "pixels"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """The size, or the word."""
        word = str(value).strip().lower()
        if word != AUTO and not (word.isdecimal() and int(word) >= 1):
            self.fail(f"{value!r} must be a whole number from 1 on, or {AUTO}", param, ctx)
        return AUTO if word == AUTO else int(word)
