"""What `--remat` may be: a name, or a size to come under."""

import click

from fitroom.errors import FitroomError
from fitroom.recipe import REMAT_NAMES, Remat


class RematChoice(click.ParamType):  # type: ignore[type-arg]
    """`none`, `blocks`, or a size such as `6GiB`."""

    name = "remat"

    def convert(self, value: str | Remat, param: click.Parameter | None, ctx: click.Context | None) -> str | Remat:
        """As `fitroom.Recipe` takes it."""
        if isinstance(value, Remat) or value.lower() in REMAT_NAMES:
            return value if isinstance(value, Remat) else value.lower()
        try:
            return Remat(budget=value)
        except FitroomError:
            self.fail(f"{value!r} must be {', '.join(REMAT_NAMES)}, or a size to come under such as 6GiB", param, ctx)
