"""`--keep` and `--allow`: names of knobs, with commas or in several flags."""

from collections.abc import Sequence
from typing import Any

import click

from fitroom.cli.shared_options import Decorator


def knob_names(flag: str, known: Sequence[str], text: str) -> Decorator:
    """The option; which names are known is checked by `fitroom.plan`'s own words."""

    def split(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> tuple[str, ...]:
        return tuple(word.strip() for words in given for word in words.split(","))

    def complete(ctx: click.Context, param: click.Parameter, typed: str) -> list[str]:
        before, comma, begun = typed.rpartition(",")
        return [f"{before}{comma}{name}" for name in known if name.startswith(begun)]

    options: dict[str, Any] = {"multiple": True, "callback": split, "shell_complete": complete}
    return click.option(flag, metavar="KNOB[,KNOB...]", help=f"{text}: {', '.join(known)}.", **options)
