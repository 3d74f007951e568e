"""What a terminal can show: its width, its characters, tables with bars; and the same as a plain string."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fitroom.report.shared.words import format_percent, shorten_middle
from fitroom.units import format_bytes

_EIGHTHS = "▏▎▍▌▋▊▉█"
_WIDEST_BAR = 40
_NARROWEST_BAR = 6
_SHORTEST_NAME = 20
_INDENT = 2
_PLAIN_WIDTH = 100
_GAP = 2


@dataclass(frozen=True)
class Sheet:
    """The surface that text is laid out on."""

    width: int
    encoding: str

    @classmethod
    def of(cls, options: ConsoleOptions) -> "Sheet":
        """Make the sheet that a console offers."""
        return cls(options.max_width, options.encoding)

    @property
    def ascii_only(self) -> bool:
        """Whether block characters cannot be shown."""
        return not self.encoding.startswith("utf")

    @property
    def ellipsis(self) -> str:
        """What stands for text left out."""
        return "..." if self.ascii_only else "…"

    def make_text(self, text: str, style: str = "") -> Text:
        """Make text without markup; what the encoding lacks is escaped, because printing it would fail."""
        return Text(text.encode(self.encoding, "backslashreplace").decode(self.encoding), style)

    def indent(self, body: RenderableType) -> RenderableType:
        """Indent what stands under a heading."""
        return Padding(body, (0, 0, 0, _INDENT), expand=False)

    def list_sentences(self, sentences: Sequence[str]) -> RenderableType:
        """Put one sentence under the other, each behind a dash."""
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(overflow="fold")
        table.add_column(overflow="fold")
        for sentence in sentences:
            table.add_row(Text("-"), self.make_text(sentence))
        return self.indent(table)

    def shorten(self, text: str, width: int) -> str:
        """Cut the middle out of a text of more than `width` characters."""
        return shorten_middle(text, width, self.ellipsis)

    def draw_bars(
        self,
        rows: Sequence[tuple[str, int | None]],
        *,
        whole_bytes: int,
        rest: tuple[str, int] | None = None,
    ) -> RenderableType:
        """Make rows of name, size, share of the whole, and a bar; `rest` closes the table without a bar.

        Names give way before bars do, and bars are left out where even short ones have no room.
        """
        every = [*rows, rest] if rest else list(rows)
        figures = ["unknown" if size is None else format_bytes(size) for _, size in every]
        shares = ["" if size is None else format_percent(size, whole_bytes) for _, size in every]
        room = self.width - _INDENT - max(map(len, figures)) - max(map(len, shares)) - 3 * _GAP
        longest = max(len(name) for name, _ in every)
        has_bars = room - _NARROWEST_BAR >= min(longest, _SHORTEST_NAME)
        name_width = min(longest, room - _NARROWEST_BAR if has_bars else room + _GAP)
        bar_width = min(room - name_width, _WIDEST_BAR)
        largest = max((size or 0 for _, size in rows), default=0)

        table = Table.grid(padding=(0, _GAP, 0, 0))
        # Cropped, where there is no room at all, because rich's own ellipsis is not ASCII.
        table.add_column(no_wrap=True, overflow="crop")
        table.add_column(no_wrap=True, overflow="crop", justify="right")
        table.add_column(no_wrap=True, overflow="crop", justify="right")
        for (name, size), figure, share in zip(every, figures, shares, strict=True):
            is_rest = rest is not None and name == rest[0]
            label = name[:name_width] if is_rest else self.shorten(name, name_width)
            cells = [self.make_text(label), Text(figure), Text(share)]
            if has_bars:
                fraction = (size or 0) / largest if largest and not is_rest else 0.0
                cells.append(Text(draw_bar(fraction, bar_width, ascii_only=self.ascii_only), "cyan"))
            table.add_row(*cells)
        return self.indent(table)


def render_plain(shown: RenderableType) -> str:
    """Render what a terminal would show as a string, for `print`, logs and files.

    It is 100 columns wide, without colour and without blanks at the ends of lines.
    """
    file = StringIO()
    console = Console(file=file, width=_PLAIN_WIDTH, color_system=None, force_terminal=False, force_jupyter=False)
    console.print(shown)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def draw_bar(fraction: float, width: int, *, ascii_only: bool = False) -> str:
    """Make a bar `fraction` of `width` long.

    >>> draw_bar(0.5, 5), draw_bar(0.5, 4, ascii_only=True)
    ('██▌', '##')
    """
    if ascii_only:
        return "#" * round(fraction * width)
    # A size above zero is never shown as nothing: an eighth at least.
    eighths = max(round(fraction * width * 8), 1 if fraction > 0 else 0)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest - 1] if rest else "")
