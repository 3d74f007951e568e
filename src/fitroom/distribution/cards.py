"""Lists of cards as people write them: "2x RTX 3060, 1x RTX 3090"."""

import re

from fitroom.cards.catalogue import Card, find_card
from fitroom.errors import InputError

MOST_CARDS = 64
"""More cards than one machine has."""

_ENTRY = re.compile(r"(?:(?P<count>\d+)\s*[x*]\s*)?(?P<name>.*)", re.IGNORECASE)
_COUNT_BEHIND = re.compile(r"[\d\s][x*]\s*\d+$", re.IGNORECASE)


def parse_cards(text: str) -> tuple[Card, ...]:
    """Read a list of cards, each with how many there are of it. Raises InputError, or UnknownNameError for a card.

    >>> [card.name for card in parse_cards("2x RTX 3060, RTX 3090")]
    ['RTX 3060', 'RTX 3060', 'RTX 3090']
    """
    cards: list[Card] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        found = _ENTRY.fullmatch(entry)
        assert found is not None, "every text matches"
        count = int(found["count"] or 1)
        if not found["name"] or not 1 <= count <= MOST_CARDS or _COUNT_BEHIND.search(found["name"]):
            raise _not_cards(text)
        cards += [find_card(found["name"])] * count
    if not 1 <= len(cards) <= MOST_CARDS:
        raise _not_cards(text)
    return tuple(cards)


def _not_cards(text: str) -> InputError:
    return InputError(
        f"A list of 1 to {MOST_CARDS} cards is expected. Received: {text!r}.",
        hint='as in "2x RTX 3060, 1x RTX 3090"; `fitroom gpus` lists all names',
    )
