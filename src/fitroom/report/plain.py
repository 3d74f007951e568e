"""What a terminal would show, as a string: for `print`, logs and files."""

from io import StringIO

from rich.console import Console, RenderableType

_WIDTH = 100


def plain_text(shown: RenderableType) -> str:
    """The text, 100 columns wide, without colour and without blanks at line ends."""
    file = StringIO()
    console = Console(file=file, width=_WIDTH, color_system=None, force_terminal=False, force_jupyter=False)
    console.print(shown)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())
