import re

import pytest

from fitroom.cards.catalogue import Card, all_cards, find_card
from fitroom.cards.targets import target_description
from fitroom.errors import InputError

GIB = 1024**3
NVIDIA = [card for card in all_cards() if card.compute_capability is not None]
OTHERS = [card for card in all_cards() if card.compute_capability is None]
# A description without any of these crashes the compiler or gives wrong bytes.
NEEDED = {
    "major",
    "minor",
    "core_count",
    "device_memory_size",
    "threads_per_warp",
    "threads_per_block_limit",
    "threads_per_core_limit",
    "shared_memory_per_block",
    "shared_memory_per_core",
    "shared_memory_per_block_optin",
    "registers_per_core_limit",
    "registers_per_block_limit",
    "block_dim_limit_x",
    "block_dim_limit_y",
    "block_dim_limit_z",
    "fpus_per_core",
    "memory_bandwidth",
    "l2_cache_size",
    "clock_rate_ghz",
}


def read_fields(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"(\w+): ([\d.]+)", text)}


@pytest.mark.parametrize("card", NVIDIA, ids=lambda card: card.name)
def test_every_nvidia_card_gives_a_complete_target(card: Card):
    text = target_description(card, 4 * GIB)
    fields = read_fields(text)
    assert set(fields) == NEEDED
    assert all(value > 0 for name, value in fields.items() if name != "minor")
    assert (fields["major"], fields["minor"]) == card.compute_capability
    assert text.endswith('platform_name: "CUDA"')


def test_the_h200_is_described_as_on_the_card():
    assert read_fields(target_description(find_card("H200"), 100 * GIB)) == {
        "major": 9,
        "minor": 0,
        "core_count": 132,
        "device_memory_size": 125 * GIB,
        "threads_per_warp": 32,
        "threads_per_block_limit": 1024,
        "threads_per_core_limit": 2048,
        "shared_memory_per_block": 49152,
        "shared_memory_per_core": 233472,
        "shared_memory_per_block_optin": 232448,
        "registers_per_core_limit": 65536,
        "registers_per_block_limit": 65536,
        "block_dim_limit_x": 2147483647,
        "block_dim_limit_y": 65535,
        "block_dim_limit_z": 65535,
        "fpus_per_core": 128,
        "memory_bandwidth": 4.8e12,
        "l2_cache_size": 60 * 1024**2,
        "clock_rate_ghz": 1.98,
    }


@pytest.mark.parametrize("limit_bytes", [1, 2, 3, 4, 5, 16_464 * 1024**2, 10**9 + 1, 10**9 + 7, 143_771 * 1024**2 - 3])
def test_eighty_percent_of_the_memory_is_exactly_the_limit(limit_bytes: int):
    memory = int(read_fields(target_description(find_card("T4"), limit_bytes))["device_memory_size"])
    assert memory * 80 // 100 == limit_bytes
    assert (memory - 1) * 80 // 100 < limit_bytes


@pytest.mark.parametrize("card", OTHERS, ids=lambda card: card.name)
def test_cards_of_other_makers_are_for_budgets_only(card: Card):
    with pytest.raises(InputError, match="budgets only") as raised:
        target_description(card, 4 * GIB)
    assert card.name in raised.value.message
    assert "--limit" in (raised.value.hint or "")


def test_a_limit_must_be_positive():
    with pytest.raises(InputError, match="limit_bytes=0"):
        target_description(find_card("T4"), 0)
