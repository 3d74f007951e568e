"""`fitroom plan` as it is typed: the real command on small models, on JAX."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from fitroom.cards.catalogue import all_cards
from fitroom.cli.shared_options import knob_names
from fitroom.planning.result import Plan
from processes import needs_the_compiler
from ready_process import run_forked

MODELS = """
import keras
from keras import layers


def make_model(size=32):
    x = inputs = keras.Input((size, size, 3))
    for number in range(3):
        x = layers.Conv2D(16, 3, padding="same", kernel_initializer="zeros", name=f"conv_{number}")(x)
        x = layers.BatchNormalization(name=f"norm_{number}")(x)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    x = layers.Dense(3, activation="softmax", kernel_initializer="zeros", name="head")(x)
    return keras.Model(inputs, x, name="small")


def of_large_images():
    return make_model(192)


def of_numbers():
    inputs = keras.Input((8,))
    return keras.Model(inputs, layers.Dense(2, kernel_initializer="zeros")(inputs))


def wide():
    x = inputs = keras.Input((8192,))
    x = layers.Dense(8192, kernel_initializer="zeros")(x)
    return keras.Model(inputs, layers.Dense(2, kernel_initializer="zeros")(x))


if __name__ == "__main__":
    make_model(96).save("small.keras")
"""
ON_JAX = ("--backend", "jax", "--batch-size", "64")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the commands of this module run, and what they remember."""
    folder = tmp_path_factory.mktemp("plans")
    (folder / "models.py").write_text(MODELS)
    return folder


@pytest.fixture(scope="module")
def python(folder):
    """Run Python as in a shell where nothing is set."""

    def python(*arguments: str, backend: str | None = "jax", **environment: str) -> subprocess.CompletedProcess[str]:
        unset = ("KERAS_BACKEND", "FITROOM_NO_CACHE", "TF_CPP_MIN_LOG_LEVEL")
        inherited = {name: value for name, value in os.environ.items() if name not in unset}
        chosen = {"FITROOM_CACHE_DIR": str(folder / "cache"), "KERAS_HOME": str(folder / "keras"), "COLUMNS": "100"}
        return run_forked(*arguments, backend=backend, cwd=folder, env=inherited | chosen | environment)

    return python


@pytest.fixture(scope="module")
def run(python):
    return lambda *arguments: python("-m", "fitroom", "plan", *arguments)


@pytest.fixture(scope="module")
def refused(python):
    """Run `fitroom plan` with what it refuses before it imports Keras."""
    return lambda *arguments: python("-m", "fitroom", "plan", *arguments, backend=None)


def refuses(done: subprocess.CompletedProcess[str], *words: str, status: int = 1) -> None:
    assert done.returncode == status, (done.returncode, done.stdout[-500:], done.stderr[-2000:])
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "this is unexpected" not in done.stderr
    assert ("hint: " if status == 1 else "Try 'fitroom plan --help'") in done.stderr
    for word in words:
        assert word in done.stderr


def test_a_plan_is_printed_as_json_saved_and_drawn(run, folder):
    needs_the_compiler()
    written = ("--save", "plan.json", "--plot", "plan.html")
    done = run("models.py:of_large_images", *ON_JAX, "--gpu", "T4", "--budget", "384MiB", "--json", *written)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["schema_version"] == 1
    assert found["recipe"]["batch_size"] == 64
    assert 16 <= found["recipe"]["micro_batch"] < 64
    assert found["budget"]["bytes"] == 384 * 2**20
    assert found["estimate"]["required_bytes"] + found["reserve_bytes"] <= 384 * 2**20
    assert {"precision", "remat"} <= set(found["recipe"])
    assert "building models.py:of_large_images" in done.stderr
    plan = Plan.load(folder / "plan.json")
    assert json.loads(json.dumps(plan.to_dict())) == found
    assert len(plan.frontier) > 1
    assert f"micro-batch {plan.micro_batch}" in (folder / "plan.html").read_text()


def test_a_budget_that_nothing_fits_names_the_smallest_and_a_card(run):
    needs_the_compiler()
    done = run("models.py:make_model", *ON_JAX, "--gpu", "T4", "--budget", "1MiB")
    refuses(done, "1.0 MiB", "the smallest budget that does is", "MiB", "the smallest card that does is")


def test_weights_too_large_for_each_of_several_cards_are_divided_among_them(run):
    needs_the_compiler()
    done = run("models.py:wide", *ON_JAX, "--gpus", "2x RTX 3060", "--budget", "1000MiB", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["shard_weights"]
    (cards,) = found["cards"]
    state_bytes = 3 * 4 * 8192 * 8192  # weights, and two for each of Adam's
    assert state_bytes / 2 < cards["required_bytes"] < state_bytes
    assert "Dividing weights and optimizer state among the cards" in done.stderr


@pytest.mark.slow
def test_smaller_pictures_are_planned_for_a_file_where_that_is_allowed_and_remembered(python, run):
    needs_the_compiler()
    saved = python("models.py", KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")
    assert saved.returncode == 0, saved.stderr
    whole = ("--keep", "remat,micro-batch", "--allow", "image-size", "--gpu", "T4", "--budget", "128MiB")
    done = run("small.keras", *ON_JAX, *whole)
    assert done.returncode == 0, done.stderr
    assert "fits with whole batches, float32, 64 x 64 pixels\n" in done.stdout
    assert "changes the task itself" in done.stdout
    again = run("small.keras", *ON_JAX, *whole)
    assert again.stdout == done.stdout
    assert again.stderr == "backend: JAX (--backend)\n"


def test_every_card_of_the_catalogue_is_answered_for(run):
    needs_the_compiler()
    done = run("models.py:of_numbers", *ON_JAX, "--gpu", "all", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["schema_version"] == 1
    assert sorted(each["gpu"] for each in found["plans"]) == sorted(card.name for card in all_cards())
    assert all(each["option"]["micro_batch"] == 64 for each in found["plans"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--keep", "precison"], ["precison", "'precision'", "precision, kernels, remat, micro-batch, jit"]),
        (["--allow", "image-size,colour"], ["colour", "known are: image-size, optimizer, frozen-layers"]),
        (["--precision", "mixed_float61"], ["Unknown precision", "known are: auto, float32"]),
        (["--gpu", "RTX 3600"], ["Unknown GPU", "RTX 3060"]),
        (["--budget", "12 bananas"], ["12 bananas", "12GiB"]),
        (["--gpu", "T4", "--probe"], ["--probe", "T4", "leave out --probe"]),
    ],
)
def test_a_name_or_size_that_is_not_known_is_told_before_any_work(refused, arguments, words):
    done = refused("xception", *arguments)
    refuses(done, *words)
    assert "building" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--batch-size", "0"], ["--batch-size", "or max"]),
        (["--plot", "plan.pdf"], [".svg, .png or .html"]),
        (["--save", "nowhere/plan.json"], ["no folder 'nowhere'"]),
        (["--gpu", "all", "--budget", "8GiB"], ["--budget is for one card"]),
        (["--gpu", "all", "--batch-size", "max"], ["a number for --batch-size"]),
    ],
)
def test_wrong_usage_is_told_before_any_work(refused, arguments, words):
    refuses(refused("xception", *arguments), *words, status=2)


def test_the_shell_completes_a_knob_after_a_comma():
    @knob_names("--keep", ("precision", "remat"), "What stays")
    def command(keep: tuple[str, ...]) -> None:
        """Does nothing."""

    (option,) = command.__click_params__
    completed = option.shell_complete(None, "precision,re")
    assert [item.value for item in completed] == ["precision,remat"]
