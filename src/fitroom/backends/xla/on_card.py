"""What a card adds to a step that was laid out without one."""

from collections.abc import Iterator
from itertools import chain

from fitroom.backends.xla.dump import Dump
from fitroom.backends.xla.early_fills import early_fills
from fitroom.backends.xla.matrix_workspaces import matrix_workspaces
from fitroom.cards.catalogue import Card


def added_on_card(dump: Dump, card: Card) -> Iterator[tuple[range, int]]:
    """At which moments of the schedule, and how many bytes."""
    return chain(matrix_workspaces(dump, card), early_fills(dump))
