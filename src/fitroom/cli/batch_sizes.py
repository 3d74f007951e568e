"""Batch sizes as they are typed: one, or several with commas."""

import click


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
            if not word.strip().isdecimal() or int(word) < 1:
                self.fail(f"{value!r} must be a positive whole number, or several with commas: 16,32,64", param, ctx)
            sizes.append(int(word))
        return tuple(dict.fromkeys(sizes))
