"""Which backend is taken, by processes that import the real Keras."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fitroom
from fitroom.backends import choose
from fitroom.backends.choose import choose_backend, installed_backends, settle_backend

SOURCE = Path(fitroom.__file__).parents[1]


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch, tmp_path):
    """As in a shell where nothing is set, with all three backends installed and Keras not imported."""
    monkeypatch.setenv("KERAS_BACKEND", "")  # so that monkeypatch takes back what choose_backend sets
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    install(monkeypatch, "jax", "tensorflow", "torch")


def install(monkeypatch, *names):
    monkeypatch.setattr(choose, "_is_installed", lambda name: name in names)


def test_what_keras_writes_by_itself_is_not_the_users_wish_and_what_a_user_wrote_is(monkeypatch, tmp_path):
    """The file is the real one: the installed Keras writes it when it is first imported, whatever it is told to use."""
    program = "from keras.src.backend import config"
    environment = os.environ | {"KERAS_HOME": str(tmp_path), "KERAS_BACKEND": "numpy"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, timeout=900)
    file = tmp_path / "keras.json"
    assert json.loads(file.read_text())["backend"] == "tensorflow"
    assert choose_backend(None) == "jax"
    monkeypatch.setenv("KERAS_BACKEND", "")
    file.write_text(file.read_text().replace('"float32"', '"float16"'))
    choice = settle_backend(None)
    assert (choice.name, choice.why) == ("tensorflow", str(file))
    monkeypatch.setenv("KERAS_BACKEND", "")
    file.write_text('{"backend": "tensorflow"}')
    assert choose_backend(None) == "tensorflow"


def run_python(program, *flags, **environment):
    """Run a program that prints an error's class, message and hint, one a line."""
    program = f"""
import sys
sys.path.insert(0, {str(SOURCE)!r})
from fitroom.backends.choose import *
try:
    {program}
except Exception as error:
    print(type(error).__name__, error.message, error.hint, sep="\\n")
"""
    done = subprocess.run(
        [sys.executable, *flags, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_where_nothing_is_installed_the_install_line_is_printed():
    printed = run_python("choose_backend(None)", "-S")  # -S: an interpreter without site-packages
    assert printed == [
        "FitroomError",
        "No backend is installed: Keras needs one of JAX, TensorFlow and PyTorch.",
        "pip install 'fitroom[jax]' (or 'fitroom[tensorflow]' or 'fitroom[torch]')",
    ]


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_the_library_obeys_the_keras_that_is_imported(monkeypatch, name):
    monkeypatch.undo()
    if name not in installed_backends():
        pytest.skip(f"{name} is not installed")
    assert run_python("print(current_backend().name)", KERAS_BACKEND=name)[-1] == name


def test_the_library_refuses_a_keras_that_cannot_train():
    printed = run_python("current_backend()", KERAS_BACKEND="numpy")
    assert printed[:2] == ["BackendError", "The numpy backend of Keras cannot train."]


def test_the_library_says_what_to_set_when_keras_wants_what_is_not_there():
    hide_tensorflow = "sys.modules['tensorflow'] = None; current_backend()"
    printed = run_python(hide_tensorflow, KERAS_BACKEND="tensorflow")
    assert printed[:2] == [
        "BackendError",
        "Keras is set to the tensorflow backend, and tensorflow is not installed.",
    ]
    assert "pip install 'fitroom[tensorflow]'" in printed[2]
