"""Commands that go on in a fresh process where memory stays taken in the one before: real out-of-memory on TensorFlow.

TensorFlow waits ten seconds before it gives up on an allocation, so the processes run side by side.
"""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from picture_runs import TRAIN, make_pictures
from pressure import limited
from processes import ROOT, needs
from ready_process import run_forked

SCRIPT = ROOT / "tests" / "helpers" / "scripts" / "memory_held.py"
LIMIT_MB = 90
NEVER, AT_SECOND = 9, 1

HOLDS_ONCE = """
from pathlib import Path
import keras, tensorflow as tf
from keras import layers

def make_model():
    mark = Path("mark")
    if not mark.exists():
        mark.touch()
        keras.held = [tf.zeros((2**18,)) for _ in range(72)]  # outlives this module
    return keras.Sequential([
        keras.Input((192, 192, 3)),
        layers.Conv2D(8, 3, activation="relu"),
        layers.Conv2D(8, 3, activation="relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(3),
    ])
"""


def run(*words, cwd=None):
    """Forked; the fresh process that it starts is one."""
    command = "-m", "fitroom", *map(str, words)
    return run_forked(*command, backend="tensorflow", cwd=cwd, env=limited(LIMIT_MB))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Each command's end, and the folder that it ran in."""
    needs("tensorflow")
    folder = tmp_path_factory.mktemp("fresh")
    pictures = make_pictures(tmp_path_factory.mktemp("pictures"))
    (pictures / "holds.py").write_text(HOLDS_ONCE)
    once = ("--epochs", "1", "--batch-size", "2", "--image-size", "192", "--precision", "float32")
    commands = {
        "undisturbed": ("run", "--run-dir", folder / "a", SCRIPT, folder / "mark-a", NEVER),
        "held": ("run", "--run-dir", folder / "b", SCRIPT, folder / "mark-b", AT_SECOND),
        "no run folder": ("run", SCRIPT, folder / "mark-c", AT_SECOND),
        "train": ("train", *TRAIN[1:2], "--model", "holds.py:make_model", *once, "--run-dir", "held", "--json"),
    }
    with ThreadPoolExecutor(len(commands)) as pool:
        done = pool.map(lambda words: run(*words, cwd=pictures), commands.values())
        return dict(zip(commands, done, strict=True)) | {"folder": folder, "pictures": pictures}


def test_a_script_goes_on_in_a_fresh_process_to_the_result_of_one_that_was_not_held_up(runs):
    held = runs["held"]
    assert held.returncode == 0, held.stderr[-3000:]
    assert "in a fresh process with micro-batch 2 (restart 1 of at most 10)" in held.stderr
    assert "restart 2" not in held.stderr
    assert held.stdout == runs["undisturbed"].stdout
    assert "updates 4" in held.stdout


def test_without_a_run_folder_the_error_says_what_to_begin_with(runs):
    done = runs["no run folder"]
    assert done.returncode == 1
    assert "--micro-batch 2" in done.stderr
    assert "--run-dir FOLDER" in done.stderr


def test_a_folder_of_pictures_is_trained_on_in_a_fresh_process(runs):
    done = runs["train"]
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert any("(restart 1 of at most 10)" in str(line) for line in lines)
    assert lines[-1]["state"] == "finished"
