"""What a terminal can show: its width, its characters, and tables with bars made of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fitroom.report.words import percent, shorten_middle
from fitroom.units import format_bytes

_EIGHTHS = "▏▎▍▌▋▊▉█"
_WIDEST_BAR = 40
_NARROWEST_BAR = 6
_SHORTEST_NAME = 20
_INDENT = 2
_GAP = 2


@dataclass(frozen=True)
class Sheet:
    """The surface that text is laid out on."""

    width: int
    encoding: str

    @classmethod
    def of(cls, options: ConsoleOptions) -> "Sheet":
        """The sheet that a console offers."""
        return cls(options.max_width, options.encoding)

    @property
    def ascii_only(self) -> bool:
        """Whether block characters cannot be shown."""
        return not self.encoding.startswith("utf")

    @property
    def ellipsis(self) -> str:
        """What stands for text left out."""
        return "..." if self.ascii_only else "…"

    def text(self, text: str, style: str = "") -> Text:
        """Text as it is, without markup; what the encoding lacks is escaped, because printing it would fail."""
        return Text(text.encode(self.encoding, "backslashreplace").decode(self.encoding), style)

    def indented(self, body: RenderableType) -> RenderableType:
        """What stands under a heading."""
        return Padding(body, (0, 0, 0, _INDENT), expand=False)

    def listed(self, sentences: Sequence[str]) -> RenderableType:
        """One sentence under the other, each behind a dash."""
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(overflow="fold")
        table.add_column(overflow="fold")
        for sentence in sentences:
            table.add_row(Text("-"), self.text(sentence))
        return self.indented(table)

    def shorten(self, text: str, width: int) -> str:
        """At most `width` characters, cut in the middle."""
        return shorten_middle(text, width, self.ellipsis)

    def bars(
        self,
        rows: Sequence[tuple[str, int | None]],
        *,
        whole_bytes: int,
        rest: tuple[str, int] | None = None,
    ) -> RenderableType:
        """Rows of name, size, share of the whole, and a bar; `rest` closes the table without a bar.

        Names give way before bars do, and bars are left out where even short ones have no room.
        """
        every = [*rows, rest] if rest else list(rows)
        figures = ["unknown" if size is None else format_bytes(size) for _, size in every]
        shares = ["" if size is None else percent(size, whole_bytes) for _, size in every]
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
            cells = [self.text(label), Text(figure), Text(share)]
            if has_bars:
                fraction = (size or 0) / largest if largest and not is_rest else 0.0
                cells.append(Text(bar(fraction, bar_width, ascii_only=self.ascii_only), "cyan"))
            table.add_row(*cells)
        return self.indented(table)


def bar(fraction: float, width: int, *, ascii_only: bool = False) -> str:
    """A bar `fraction` of `width` long.

    >>> bar(0.5, 5), bar(0.5, 4, ascii_only=True)
    ('██▌', '##')
    """
    if ascii_only:
        return "#" * round(fraction * width)
    # What is there is never shown as nothing: an eighth at least.
    eighths = max(round(fraction * width * 8), 1 if fraction > 0 else 0)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest - 1] if rest else "")
