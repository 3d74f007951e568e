"""A budget as a limit of the framework's allocator, set before it starts."""

import os
import sys

import pytest

from fitroom.backends.choose import limit_memory
from fitroom.backends.jax import limit as limit_of_jax
from fitroom.backends.tensorflow import limit as limit_of_tensorflow
from fitroom.cards.nvml import LiveGpu
from fitroom.cards.overhead import visible_bytes

GIB = 2**30
H200 = LiveGpu(index=0, name="NVIDIA H200", memory_bytes=143_771 * 2**20, used_bytes=0)


@pytest.fixture
def settings(monkeypatch):
    """The environment of a process that has imported no framework, put back afterwards."""
    for framework in ("jax", "tensorflow"):
        monkeypatch.delitem(sys.modules, framework, raising=False)
    kept = dict(os.environ)
    monkeypatch.setattr(os, "environ", kept)
    return kept


def test_jax_gets_a_part_of_the_card_and_never_both_variables(settings, monkeypatch):
    monkeypatch.setattr(limit_of_jax, "live_gpus", lambda: (H200,))
    settings["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.5"
    assert limit_memory("jax", 8 * GIB) is None
    assert float(settings["XLA_CLIENT_MEM_FRACTION"]) * visible_bytes(H200.memory_bytes) == pytest.approx(8 * GIB, 1e-4)
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in settings
    limit_memory("jax", 1000 * GIB)
    assert float(settings["XLA_CLIENT_MEM_FRACTION"]) == 1


def test_where_there_is_no_limit_to_set_the_reason_is_said(settings, monkeypatch):
    monkeypatch.setattr(limit_of_jax, "live_gpus", lambda: ())
    assert limit_memory("jax", GIB) == "JAX has no limit for memory on the CPU"
    assert "XLA_CLIENT_MEM_FRACTION" not in settings


def test_tensorflow_without_a_card_takes_the_allocator_of_cards(settings, monkeypatch):
    monkeypatch.setattr(limit_of_tensorflow, "live_gpus", lambda: ())
    assert limit_memory("tensorflow", 300 * 2**20) is None
    assert settings["TF_CPU_BFC_MEM_LIMIT_IN_MB"] == "300"
    assert settings["TF_ENABLE_ONEDNN_OPTS"] == "0"
