import json
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from fitroom.budget import Budget
from fitroom.cards.catalogue import all_cards
from fitroom.cards.nvml import LiveGpu
from fitroom.cli import gpus
from fitroom.cli.main import fitroom
from fitroom.errors import UnknownNameError

T4 = LiveGpu(index=0, name="Tesla T4", memory_bytes=15360 * 1024**2, used_bytes=1024**3)
UNLISTED = LiveGpu(index=1, name="NVIDIA Imaginary 9000", memory_bytes=10 * 1024**3, used_bytes=0)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "live_gpus", tuple)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "live_gpus", lambda: (T4, UNLISTED))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(fitroom, ["gpus", *arguments], catch_exceptions=False)


def test_all_cards_are_listed_within_a_hundred_columns():
    result = run()
    assert result.exit_code == 0
    assert all(len(line) <= 100 for line in result.stdout.splitlines())
    listed = [line.strip() for line in result.stdout.splitlines()]
    for card in all_cards():
        assert any(line.startswith(f"{card.name} ") for line in listed), card.name
    assert "\x1b" not in result.stdout
    assert "…" not in result.stdout


def test_a_machine_without_a_gpu_is_told_so_on_stderr():
    result = run()
    assert result.stderr == "No NVIDIA GPU was found in this machine.\n"


@pytest.mark.usefixtures("two_gpus")
def test_live_cards_come_first():
    result = run()
    assert result.stderr == ""
    head, _, catalogue = result.stdout.partition("\nCards")
    assert "Tesla T4" in head
    assert "14.00 GiB" in head
    assert "NVIDIA Imaginary 9000" in head
    assert "RTX 3060" in catalogue


def test_one_card_shows_all_its_facts():
    text = run("RTX", "3060").stdout
    for fact in ("RTX 3060", "8.6", "12.00 GiB", "360.0 GB/s", "28 at 1.777 GHz", "2.2 MiB", "12.7 TFLOPS", "https://"):
        assert fact in text
    for backend in ("jax", "tensorflow", "torch"):
        assert f"Budget with {backend}" in text


def test_json_of_one_card_is_one_object():
    result = run("a100", "--json")
    card = json.loads(result.stdout)
    assert card["name"] == "A100 40GB"
    assert card["compute_capability"] == "8.0"
    assert card["memory_bytes"] == 40 * 1024**3
    assert card["budget_bytes"]["torch"] == Budget.of("A100 40GB", backend="torch").bytes
    assert result.stderr == ""


def test_json_of_all_cards_is_one_list():
    result = run("--json")
    assert [card["name"] for card in json.loads(result.stdout)] == [card.name for card in all_cards()]


def test_unknown_figures_are_null_in_json():
    card = json.loads(run("--json", "Apple M1").stdout)
    assert card["compute_capability"] is None
    assert card["l2_bytes"] is None
    assert card["bf16_flops"] is None


@pytest.mark.usefixtures("two_gpus")
def test_live_cards_come_first_in_json_with_their_card():
    cards = json.loads(run("--json").stdout)
    assert [card["live"] for card in cards[:3]] == [True, True, False]
    assert [card["card"] for card in cards[:2]] == ["T4", None]
    assert cards[0]["used_bytes"] == 1024**3


def test_an_unknown_card_is_an_error_with_suggestions():
    with pytest.raises(UnknownNameError) as raised:
        run("RTX 3600")
    assert "RTX 3060" in raised.value.suggestions


def test_from_the_shell_an_unknown_card_exits_with_one_and_leaves_stdout_empty():
    command = [sys.executable, "-c", "from fitroom.cli.main import main; main()", "gpus", "RTX 3600", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "did you mean" in done.stderr
