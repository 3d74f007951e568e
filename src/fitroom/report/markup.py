"""Pieces of a page: what is in a file of `assets/`, names that are only names, tables."""

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any


def asset(name: str) -> str:
    """The text of a file in `assets/`."""
    return files("fitroom.report").joinpath("assets", *name.split("/")).read_text(encoding="utf-8")


def script_json(data: Any) -> str:
    """JSON to stand in a `<script>`. A `<` could end that element, so there is none.

    >>> script_json({"name": "</script>"})
    '{"name":"\\\\u003c/script>"}'
    """
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def name(text: str) -> str:
    """A user's name for something, escaped and kept apart from the direction of the text around it.

    >>> name("<daisy>")
    '<bdi>&lt;daisy&gt;</bdi>'
    """
    return f"<bdi>{escape(text)}</bdi>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "", kind: str = "") -> str:
    """A table whose first column names its rows. Cells are HTML already."""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in heads)
    body = "\n".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>'
        for first, *others in rows
    )
    titled = f"<caption>{caption}</caption>" if caption else ""
    return f'<table class="{kind}">{titled}<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>'


def scrolling(body: str, label: str, *, way: str = "scroll") -> str:
    """What scrolls within the page where it is too long, or too wide (`way="scroll-across"`)."""
    return f'<div class="{way}" tabindex="0" role="region" aria-label="{escape(label)}">{body}</div>'


def details(summary: str, body: str) -> str:
    """What is folded away until it is asked for."""
    return f'<details><summary>{summary}</summary><div class="folded">{body}</div></details>'


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """Heads, each with what is said of it. What is said is HTML already; where it is empty, both are left out."""
    items = "".join(f"<dt>{escape(head)}</dt><dd>{said}</dd>" for head, said in rows if said)
    return f'<dl class="pairs">{items}</dl>' if items else ""
