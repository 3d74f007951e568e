from collections import Counter

import pytest

from fitroom.cards.catalogue import Card, all_cards, family, find_card
from fitroom.errors import InputError, UnknownNameError

FP32_LANES = {
    (6, 0): 64,
    (6, 1): 128,
    (7, 0): 64,
    (7, 5): 64,
    (8, 0): 64,
    (8, 6): 128,
    (8, 9): 128,
    (9, 0): 128,
    (10, 0): 128,
    (12, 0): 128,
}
NVIDIA = [card for card in all_cards() if card.vendor == "NVIDIA"]


def test_the_catalogue_has_the_cards_people_have():
    assert len(all_cards()) >= 70
    assert {card.vendor for card in all_cards()} == {"NVIDIA", "AMD", "Apple"}


def test_the_catalogue_is_read_once():
    assert all_cards() is all_cards()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("3060", "RTX 3060"),
        ("rtx3060", "RTX 3060"),
        ("RTX 3060", "RTX 3060"),
        ("RTX 3060 12GB", "RTX 3060"),
        ("NVIDIA GeForce RTX 3060", "RTX 3060"),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "RTX 3060 Laptop"),
        ("3060ti", "RTX 3060 Ti"),
        ("4090 laptop", "RTX 4090 Laptop"),
        ("RTX 4090 Mobile", "RTX 4090 Laptop"),
        ("4090", "RTX 4090"),
        ("t4", "T4"),
        ("T4 16 GB", "T4"),
        ("Tesla T4", "T4"),
        ("Colab T4", "T4"),
        ("google colab t4", "T4"),
        ("Kaggle T4 x2", "T4"),
        ("Kaggle P100", "Tesla P100 16GB"),
        ("Colab L4", "L4"),
        ("A10", "A10"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA GH200 480GB", "GH200 96GB"),
        ("Tesla V100-SXM2-32GB", "Tesla V100 32GB"),
        ("TITAN X (Pascal)", "Titan X Pascal"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell"),
        ("Radeon RX 7900 XTX", "RX 7900 XTX"),
        ("Apple M3 Max 64GB", "M3 Max 64GB"),
    ],
)
def test_a_card_is_found_as_people_and_the_driver_write_it(text: str, name: str):
    assert find_card(text).name == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("nvidia a100", "A100 40GB"),
        ("A100-80GB", "A100 80GB PCIe"),
        ("a100 80gb", "A100 80GB PCIe"),
        ("3080", "RTX 3080 10GB"),
        ("RTX 3080 12GB", "RTX 3080 12GB"),
        ("1060", "GTX 1060 3GB"),
        ("V100", "Tesla V100 16GB"),
        ("H100", "H100 PCIe"),
        ("RTX 6000", "Quadro RTX 6000"),
        ("3080 laptop", "RTX 3080 Laptop 8GB"),
        ("M2 Max", "M2 Max 32GB"),
    ],
)
def test_a_name_that_covers_several_cards_means_the_smallest(text: str, name: str):
    assert find_card(text).name == name


@pytest.mark.parametrize(
    ("text", "suggested"),
    [
        ("RTX 3600", {"RTX 3060"}),
        ("H300", {"H100", "H200"}),
        ("A10O", {"A100"}),
        ("RTX 3060 8GB", {"RTX 3060"}),
        ("titan", {"Titan V"}),
    ],
)
def test_an_unknown_card_is_refused_with_the_nearest_names(text: str, suggested: set[str]):
    with pytest.raises(UnknownNameError) as raised:
        find_card(text)
    assert suggested <= set(raised.value.suggestions)
    assert repr(text) in raised.value.message
    assert "`fitroom gpus` lists all" in (raised.value.hint or "")
    for suggestion in raised.value.suggestions:
        find_card(suggestion)


@pytest.mark.parametrize("text", ["", "  ", "nvidia", "RTX", "16GB", "12GiB", "potato", "-1", "GeForce GPU"])
def test_what_names_no_card_is_refused(text: str):
    with pytest.raises(InputError):
        find_card(text)


@pytest.mark.parametrize("card", all_cards(), ids=lambda card: card.name)
def test_every_name_and_alias_finds_its_own_card(card: Card):
    assert {find_card(name).name for name in (card.name, *card.aliases)} == {card.name}


def test_names_and_aliases_are_unique():
    names = Counter(name.lower() for card in all_cards() for name in (card.name, *card.aliases))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("card", NVIDIA, ids=lambda card: card.name)
def test_the_float32_rate_agrees_with_the_multiprocessors_and_the_clock(card: Card):
    assert card.compute_capability is not None
    expected = card.sm_count * FP32_LANES[card.compute_capability] * 2 * card.clock_ghz * 1e9
    assert card.fp32_flops == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("card", all_cards(), ids=lambda card: card.name)
def test_figures_are_whole_bytes_within_reason(card: Card):
    assert all(isinstance(size, int) for size in (card.memory_bytes, card.bandwidth_bytes_per_second, card.fp32_flops))
    assert 3 * 1024**3 <= card.memory_bytes <= 200 * 1024**3
    assert 50e9 < card.bandwidth_bytes_per_second < 10e12
    assert card.source.startswith("https://")


@pytest.mark.parametrize("card", NVIDIA, ids=lambda card: card.name)
def test_matrix_rates_are_there_where_the_architecture_has_the_unit(card: Card):
    assert card.compute_capability is not None
    if card.compute_capability < (7, 0) or card.name.startswith("GTX"):
        assert card.fp16_flops is None
    else:
        assert card.fp16_flops is not None
        assert card.fp16_flops > card.fp32_flops
    has_bf16 = card.compute_capability >= (8, 0)
    assert (card.bf16_flops is not None) == has_bf16
    assert (card.tf32_flops is not None) == has_bf16


def test_memory_is_what_the_driver_reports():
    reported_mib = {"H200": 143771, "T4": 15360, "L4": 23034, "A10G": 23028, "L40S": 46068, "H100 SXM": 81559}
    assert {name: find_card(name).memory_bytes // 1024**2 for name in reported_mib} == reported_mib


def test_siblings_of_one_name_tell_their_difference():
    families = Counter(family(card) for card in all_cards() if family(card) != card.name)
    assert families["A100"] == 3
    for name in ("A100", "RTX 3080", "GTX 1060", "H100", "M1"):
        assert name not in {card.name for card in all_cards()}
