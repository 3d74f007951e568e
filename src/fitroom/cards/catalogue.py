"""The catalogue of graphics cards, and how to find one in it by the name people use.

`cards.csv` holds one card a line; its figures are the maker's. Memory is what the driver reports where that
is known, which can be less than the box says; L2 is what CUDA reports where it differs from the datasheet. A
board that carries several GPUs (A16, MI250X) is listed as one of them: that is what a framework trains on.
"""

import csv
import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from importlib import resources

from fitroom.display import TextDisplay
from fitroom.errors import InputError, UnknownNameError

_MIB = 1024**2
_GIB = 1024**3
_TERA = 10**12

Words = tuple[str, ...]

# Words in front of a name that tell makers and product lines apart, which the number already does.
_BRANDS = {"nvidia", "geforce", "rtx", "gtx", "tesla", "quadro", "amd", "radeon", "rx", "instinct", "apple"}
_NOISE = {"google", "gpu", "graphics", "card", "generation", "edition", "workstation", "server"}
_SYNONYMS = {"mobile": "laptop", "gib": "gb"}
# What makes one card of a name differ from the next: "A100 80GB PCIe" and "A100 40GB" are both an A100.
_VARIANT = re.compile(r" (?:\d+GB|PCIe|SXM|NVL)\b")
# "T4 16GB" must find a card of which the driver shows 15 GiB, "RTX 3080 12GB" must not find the 10 GiB one.
_SIZE_TOLERANCE = 0.075


@dataclass(frozen=True, kw_only=True)
class Card(TextDisplay):
    """One graphics card: what its datasheet says. None where it is unknown or the card has no such unit."""

    name: str
    aliases: tuple[str, ...]
    vendor: str
    """One of "NVIDIA", "AMD" and "Apple"."""

    architecture: str
    memory_bytes: int
    """All of it, as the driver reports it where known."""

    compute_capability: tuple[int, int] | None
    """Major and minor; None for cards that are not NVIDIA's."""

    bandwidth_bytes_per_second: int
    sm_count: int
    """Streaming multiprocessors; compute units on AMD, GPU cores on Apple."""

    clock_ghz: float
    """The boost clock."""

    l2_bytes: int | None
    fp32_flops: int
    """Per second, outside the matrix units."""

    tf32_flops: int | None
    """Per second in the matrix units (tensor cores), accumulated in float32, without sparsity; likewise below."""

    fp16_flops: int | None
    bf16_flops: int | None
    source: str
    """Where the figures can be looked up."""


@cache
def all_cards() -> tuple[Card, ...]:
    """Every card of the catalogue, grouped by architecture."""
    text = resources.files("fitroom.cards").joinpath("cards.csv").read_text(encoding="utf-8")
    return tuple(_read_row(row) for row in csv.DictReader(text.splitlines()))


def find_card(text: str) -> Card:
    """Find the card that `text` names, as people, shops or the driver write it.

    A name that covers several cards ("A100", "RTX 3080", "H100") means the one with the least memory, and among
    those the one with the least bandwidth, so that nothing is promised that another of them could not keep.

    >>> find_card("rtx3060").name, find_card("A100").name, find_card("NVIDIA A100-SXM4-80GB").name
    ('RTX 3060', 'A100 40GB', 'A100 80GB SXM')
    """
    words = _words(text)
    size_gib, rest = _split_size(words)
    siblings = [card for card in all_cards() if rest in (*_spellings(card), _words(family(card)))]
    found = [card for card in all_cards() if words in _spellings(card)] or [
        card for card in siblings if size_gib is None or _has_gib(card, size_gib)
    ]
    if not found:
        names = [card.name for card in siblings] or _names_like(text)
        raise UnknownNameError("GPU", text, names, more="`fitroom gpus` lists all")
    return min(found, key=lambda card: (card.memory_bytes, card.bandwidth_bytes_per_second))


def check_nvidia(card: Card) -> None:
    """Raise InputError for a card of another maker: the models of kernels are of NVIDIA's."""
    if card.vendor != "NVIDIA":
        raise InputError(
            f"Estimates are for NVIDIA's cards. Received: {card.name!r} by {card.vendor}.",
            hint="pick an NVIDIA card for the kernels' sake, and give this card's memory with `--limit` or `--budget`",
        )


def family(card: Card) -> str:
    """The card's name without what tells it from its siblings: "A100" for "A100 80GB PCIe"."""
    return _VARIANT.sub("", card.name)


@cache
def _spellings(card: Card) -> frozenset[Words]:
    return frozenset(_words(name) for name in (card.name, *card.aliases))


def _words(text: str) -> Words:
    """Letters and numbers apart, so that "RTX 3060 Ti", "rtx3060ti" and "3060-Ti" read the same."""
    words = [_SYNONYMS.get(word, word) for word in re.findall(r"[a-z]+|\d+", text.lower()) if word not in _NOISE]
    while words and words[0] in _BRANDS:
        del words[0]
    return tuple(words)


def _split_size(words: Words) -> tuple[int | None, Words]:
    for at in range(1, len(words)):
        if words[at] == "gb" and words[at - 1].isdigit():
            return int(words[at - 1]), words[: at - 1] + words[at + 1 :]
    return None, words


def _has_gib(card: Card, size_gib: int) -> bool:
    return abs(card.memory_bytes / _GIB - size_gib) <= _SIZE_TOLERANCE * size_gib


def _names_like(text: str) -> list[str]:
    """The few names nearest to a misspelt one, digits in the wrong order ("3600") among the mistakes."""
    typed = text.lower()
    names = dict.fromkeys(name for card in all_cards() for name in (family(card), card.name))

    def likeness(name: str) -> float:
        known = name.lower()
        pairs = ((typed, known), ("".join(sorted(typed)), "".join(sorted(known))))
        return sum(SequenceMatcher(None, *pair).ratio() for pair in pairs)

    return sorted(names, key=likeness, reverse=True)[:3]


def _read_row(row: dict[str, str]) -> Card:
    capability = row["compute_capability"]
    major, _, minor = capability.partition(".")
    return Card(
        name=row["name"],
        aliases=tuple(filter(None, row["aliases"].split(";"))),
        vendor=row["vendor"],
        architecture=row["architecture"],
        memory_bytes=int(row["memory_mib"]) * _MIB,
        compute_capability=(int(major), int(minor)) if capability else None,
        bandwidth_bytes_per_second=round(float(row["bandwidth_gbps"]) * 10**9),
        sm_count=int(row["sm_count"]),
        clock_ghz=float(row["clock_ghz"]),
        l2_bytes=_scale(row["l2_mib"], _MIB),
        fp32_flops=round(float(row["fp32_tflops"]) * _TERA),
        tf32_flops=_scale(row["tf32_tflops"], _TERA),
        fp16_flops=_scale(row["fp16_tflops"], _TERA),
        bf16_flops=_scale(row["bf16_tflops"], _TERA),
        source=row["source"],
    )


def _scale(text: str, factor: int) -> int | None:
    return round(float(text) * factor) if text else None
