"""What a terminal shows."""

from io import BytesIO, TextIOWrapper

from rich.console import Console, RenderableType


def shown(renderable: RenderableType, width: int = 80, encoding: str = "utf-8") -> str:
    """What a terminal of that width and encoding shows, without spaces at line ends."""
    raw = BytesIO()
    file = TextIOWrapper(raw, encoding=encoding)
    Console(file=file, width=width, color_system=None).print(renderable)
    file.flush()
    return "\n".join(line.rstrip() for line in raw.getvalue().decode(encoding).splitlines()) + "\n"
