"""Which channels are removed: the least important ones of each group of layers that must agree."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitroom.lean.changes_made import Group
from fitroom.lean.channels import Channels


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What stays of a model."""

    removed: frozenset[int]
    """Channels that are removed, each by the one that stands for its set."""

    groups: tuple[Group, ...]

    def kept_places(self, channels: Channels, along: Any) -> Any:
        """The places along an axis whose channels stay."""
        return np.flatnonzero([root not in self.removed for root in channels.roots(along).tolist()])


def select_channels(channels: Channels, scores: Mapping[int, float], sparsity: float) -> Selection:
    """Choose what is removed: in each group, the share `sparsity` of its channels with the lowest scores.

    Args:
        channels: All channels of a model.
        scores: The importance of each set of channels, by the channel that stands for it.
        sparsity: The share to remove, from 0 to below 1.
    """
    while True:
        pins = {channels.find(channel): reason for channel, reason in reversed(channels.pins.items())}
        removed, groups = _select(channels, scores, sparsity, pins)
        unequal = [
            blocks
            for blocks in channels.blocks
            if not _is_equal(channels.roots(blocks.channels), blocks.count, removed)
        ]
        if not unequal:
            return Selection(removed=frozenset(removed), groups=tuple(groups))
        for blocks in unequal:
            channels.pin(blocks.channels, blocks.reason)


def _select(
    channels: Channels, scores: Mapping[int, float], sparsity: float, pins: Mapping[int, str]
) -> tuple[set[int], list[Group]]:
    removed: set[int] = set()
    groups: list[Group] = []
    for makers, members in _components(channels):
        pinned = [root for root in members if root in pins]
        left = _Left(channels, makers)
        for block in _cut(channels, members):
            free = sorted((root for root in block if root not in pins), key=lambda root: (scores.get(root, 0.0), root))
            count = int(sparsity * len(block) + 1e-9)
            for root in free:
                if count and left.can_remove(root):
                    left.remove(root)
                    removed.add(root)
                    count -= 1
        groups.append(
            Group(
                layers=tuple(channels.makers[maker] for maker in makers if maker in channels.makers),
                channels=len(members),
                kept=len(members) - sum(root in removed for root in members),
                pinned=len(pinned),
                reason=pins[pinned[0]] if pinned else None,
            )
        )
    return removed, [group for group in groups if group.layers]


class _Left:
    """How many sets of channels each layer has left: one in a group with wider ones must not lose all of its own."""

    def __init__(self, channels: Channels, makers: list[Any]) -> None:
        self._makers_of: dict[int, list[Any]] = defaultdict(list)
        self._counts: dict[Any, int] = {}
        for maker in makers:
            roots = set(channels.roots(channels.made[maker]).tolist())
            self._counts[maker] = len(roots)
            for root in roots:
                self._makers_of[root].append(maker)

    def can_remove(self, root: int) -> bool:
        return all(self._counts[maker] > 1 for maker in self._makers_of[root])

    def remove(self, root: int) -> None:
        for maker in self._makers_of[root]:
            self._counts[maker] -= 1


def _components(channels: Channels) -> list[tuple[list[Any], list[int]]]:
    """Layers that share channels, with the sets of channels that they make."""
    roots = {maker: channels.roots(made).tolist() for maker, made in channels.made.items()}
    first_of: dict[int, Any] = {}
    leader: dict[Any, Any] = {maker: maker for maker in roots}

    def lead(maker: Any) -> Any:
        while leader[maker] != maker:
            maker = leader[maker]
        return maker

    for maker, members in roots.items():
        for root in members:
            leader[lead(maker)] = lead(first_of.setdefault(root, maker))
    found: dict[Any, tuple[list[Any], dict[int, None]]] = defaultdict(lambda: ([], {}))
    for maker, members in roots.items():
        makers, held = found[lead(maker)]
        makers.append(maker)
        held.update(dict.fromkeys(members))
    return [(makers, list(held)) for makers, held in found.values()]


def _cut(channels: Channels, members: list[int]) -> list[list[int]]:
    """The members in the finest blocks that a layer with groups takes them in; each block loses as many."""
    cuts = [(blocks.count, channels.roots(blocks.channels).tolist()) for blocks in channels.blocks]
    cuts = [(count, along) for count, along in cuts if set(along) == set(members)]
    if not cuts:
        return [members]
    count, along = max(cuts, key=lambda cut: cut[0])
    size = len(along) // count
    return [list(dict.fromkeys(along[start : start + size])) for start in range(0, len(along), size)]


def _is_equal(roots: Any, count: int, removed: set[int]) -> bool:
    """Whether each block loses as many channels."""
    lost = np.array([root in removed for root in roots.tolist()]).reshape(count, -1).sum(axis=1)
    return bool((lost == lost[0]).all())
