"""The card of a process that torchrun started. Cards are planted: no machine of the tests has several."""

import pytest
import torch

from fitroom.backends.torch.train.distribute import _take_own_card
from fitroom.environment import VISIBLE
from fitroom.errors import InputError


class PlantedCards:
    """Two cards, as `torch.cuda` tells of them."""

    def __init__(self, monkeypatch, *, current=0, held_bytes=0):
        self.chosen = current
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: self.chosen)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: held_bytes)
        monkeypatch.setattr(torch.cuda, "set_device", self._choose)
        monkeypatch.delenv(VISIBLE, raising=False)

    def _choose(self, number):
        self.chosen = number


def test_a_process_takes_the_card_of_its_number(monkeypatch):
    cards = PlantedCards(monkeypatch)
    monkeypatch.setenv("LOCAL_RANK", "1")
    _take_own_card()
    assert cards.chosen == 1


def test_a_card_that_the_script_chose_is_kept(monkeypatch):
    cards = PlantedCards(monkeypatch, current=1)
    monkeypatch.setenv("LOCAL_RANK", "0")
    _take_own_card()
    assert cards.chosen == 1


def test_a_model_on_the_first_card_is_refused_in_the_second_process(monkeypatch):
    PlantedCards(monkeypatch, held_bytes=1000)
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(InputError, match="is on cuda:0") as raised:
        _take_own_card()
    assert "before the model is made" in raised.value.hint


def test_more_processes_than_cards_are_refused(monkeypatch):
    PlantedCards(monkeypatch)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(InputError, match="a machine with 2 cards"):
        _take_own_card()
