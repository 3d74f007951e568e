"""Training on the CPU beside a card is said, with the likely reason.

There is no card in most machines that run this: the driver's answer is replaced, what is made of it is not.
"""

import pytest

from fitroom.backends.contract import Device
from fitroom.cards.nvml import LiveGpu
from fitroom.watching import device_note as module
from fitroom.watching.device_note import device_note, likely_reason

CARD = LiveGpu(index=0, name="Tesla T4", memory_bytes=16 * 2**30, used_bytes=0)
FRACTIONS = {"XLA_CLIENT_MEM_FRACTION": "0.5", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5"}


class Sees:
    """A backend that sees one device."""

    name = "jax"

    def __init__(self, kind):
        self.kind = kind

    def devices(self):
        return (Device(name=f"{self.kind}:0", kind=self.kind, description=None),)


@pytest.mark.parametrize(("kind", "cards"), [("gpu", (CARD,)), ("cpu", ()), ("other", (CARD,))])
def test_nothing_is_said_where_the_card_is_used_or_there_is_none(monkeypatch, kind, cards):
    monkeypatch.setattr(module, "all_gpus", lambda: cards)
    assert device_note(Sees(kind)) is None


def test_a_card_that_stands_idle_is_named_with_the_reason(monkeypatch):
    monkeypatch.setattr(module, "all_gpus", lambda: (CARD, CARD))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert device_note(Sees("cpu")) == (
        "training runs on the CPU, although this machine has a card (Tesla T4): CUDA_VISIBLE_DEVICES='-1' hides it."
    )


@pytest.mark.parametrize(
    ("backend", "environment", "installed", "expected"),
    [
        ("jax", FRACTIONS, {"jax-cuda13-plugin": "0.10"}, "JAX starts on no card where both"),
        ("jax", {"JAX_PLATFORMS": "cpu"}, {"jax-cuda12-plugin": "0.10"}, "JAX_PLATFORMS='cpu' asks for it"),
        ("jax", {}, {"jax": "0.10"}, "pip install 'jax[cuda13]'"),
        ("jax", {}, {"jax-cuda12-plugin": "0.10"}, "jax did not start on it"),
        ("tensorflow", {}, {"tensorflow-cpu": "2.21"}, "tensorflow-cpu is installed"),
        ("tensorflow", {}, {"tensorflow": "2.21"}, "finds no CUDA libraries"),
        ("tensorflow", {}, {"tensorflow": "2.21", "nvidia-cudnn-cu12": "9"}, "tensorflow did not start on it"),
        ("torch", {"KERAS_TORCH_DEVICE": "cpu"}, {"torch": "2.13"}, "KERAS_TORCH_DEVICE='cpu' asks for it"),
        ("torch", {}, {"torch": "2.13.0+cpu"}, "PyTorch 2.13.0+cpu is built without CUDA"),
        ("torch", {}, {"torch": "2.13.0"}, "torch did not start on it"),
    ],
)
def test_the_reason_is_looked_for_in_settings_and_then_in_what_is_installed(
    monkeypatch, backend, environment, installed, expected
):
    monkeypatch.setattr(module, "_version", installed.get)
    assert expected in likely_reason(backend, environment)
