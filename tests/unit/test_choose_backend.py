"""Which backend is taken, and what is said when that cannot be."""

import json
import os
import sys
from types import SimpleNamespace

import pytest

from fitroom.backends import choose
from fitroom.backends.choose import choose_backend, installed_backends, load_backend, settle_backend
from fitroom.cli.output import backend_words
from fitroom.errors import BackendError, InputError, MissingExtraError, UnknownNameError


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch, tmp_path):
    """As in a shell where nothing is set, with all three backends installed and Keras not imported."""
    monkeypatch.setenv("KERAS_BACKEND", "")  # so that monkeypatch takes back what choose_backend sets
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    install(monkeypatch, "jax", "tensorflow", "torch")


def install(monkeypatch, *names):
    monkeypatch.setattr(choose, "_is_installed", lambda name: name in names)


def write_keras_json(tmp_path, text):
    (tmp_path / "keras.json").write_text(text)


def import_keras_with(monkeypatch, name):
    keras = SimpleNamespace(backend=SimpleNamespace(backend=lambda: name))
    monkeypatch.setitem(sys.modules, "keras", keras)


def test_the_flag_comes_first_and_sets_the_variable(tmp_path):
    write_keras_json(tmp_path, json.dumps({"backend": "jax"}))
    assert choose_backend("torch") == "torch"
    assert os.environ["KERAS_BACKEND"] == "torch"


def test_the_variable_comes_before_the_file(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    write_keras_json(tmp_path, json.dumps({"backend": "torch"}))
    assert choose_backend(None) == "tensorflow"


def test_the_file_comes_before_what_is_installed(tmp_path):
    write_keras_json(tmp_path, json.dumps({"backend": "torch"}))
    assert choose_backend(None) == "torch"


@pytest.mark.parametrize("text", ['{"backend": 3}', '{"floatx": "float32"}', "[]", "{half a fi", ""])
def test_a_file_that_says_nothing_of_the_users_wish_is_passed_over(tmp_path, text):
    write_keras_json(tmp_path, text)
    assert choose_backend(None) == "jax"


def test_else_it_is_the_first_one_installed(monkeypatch):
    install(monkeypatch, "tensorflow", "torch")
    assert choose_backend(None) == "tensorflow"
    assert os.environ["KERAS_BACKEND"] == "tensorflow"


@pytest.mark.parametrize(("alias", "name"), [("pytorch", "torch"), ("tf", "tensorflow"), ("JAX", "jax")])
def test_names_people_use_are_taken(monkeypatch, alias, name):
    assert choose_backend(alias) == name
    monkeypatch.setenv("KERAS_BACKEND", alias)
    assert choose_backend(None) == name
    assert os.environ["KERAS_BACKEND"] == name


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(UnknownNameError, match=r"Unknown backend\. Received: 'tensorfow'") as raised:
        choose_backend("tensorfow")
    assert raised.value.suggestions == ["tensorflow"]
    assert "jax, tensorflow, torch" in raised.value.hint


def test_an_unknown_name_in_the_file_is_an_error_too(tmp_path):
    write_keras_json(tmp_path, json.dumps({"backend": "theano"}))
    with pytest.raises(UnknownNameError, match="theano"):
        choose_backend(None)


@pytest.mark.parametrize("other", ["torch", "theano"])
def test_the_flag_wins_over_the_variable_and_that_is_said(monkeypatch, other):
    monkeypatch.setenv("KERAS_BACKEND", other)
    choice = settle_backend("jax")
    assert backend_words(choice) == f"JAX (--backend, which overrides KERAS_BACKEND={other})"
    assert os.environ["KERAS_BACKEND"] == "jax"


def test_the_reason_is_the_one_that_decided(monkeypatch):
    assert backend_words(settle_backend(None)) == "JAX (the first that is installed of jax, tensorflow, torch)"
    monkeypatch.setenv("KERAS_BACKEND", "tf")
    assert backend_words(settle_backend(None)) == "TensorFlow (KERAS_BACKEND)"
    assert backend_words(settle_backend("tensorflow")) == "TensorFlow (--backend)"


def test_flag_and_variable_may_agree_under_two_names(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    assert choose_backend("pytorch") == "torch"


def test_a_named_backend_that_is_not_installed_gets_its_install_line(monkeypatch):
    install(monkeypatch, "jax")
    with pytest.raises(MissingExtraError, match="torch") as raised:
        choose_backend("torch")
    assert raised.value.hint == "pip install 'fitroom[torch]'"
    assert os.environ["KERAS_BACKEND"] == ""


def test_keras_imported_with_another_backend_is_explained(monkeypatch):
    import_keras_with(monkeypatch, "tensorflow")
    with pytest.raises(InputError, match="fixed at its first import") as raised:
        choose_backend("jax")
    assert "KERAS_BACKEND=jax" in raised.value.hint


def test_keras_imported_without_a_wish_is_followed(monkeypatch, tmp_path):
    write_keras_json(tmp_path, json.dumps({"backend": "torch"}))
    import_keras_with(monkeypatch, "tensorflow")
    assert choose_backend(None) == "tensorflow"


@pytest.mark.parametrize("name", ["numpy", "openvino"])
def test_backends_that_cannot_train_are_refused(name):
    with pytest.raises(BackendError, match=f"{name} backend of Keras cannot train"):
        choose_backend(name)
    with pytest.raises(BackendError, match="cannot train"):
        load_backend(name)


def test_a_folder_beside_the_script_is_not_taken_for_a_framework(monkeypatch, tmp_path):
    monkeypatch.undo()
    (tmp_path / "frameworks" / "jax").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "frameworks")])
    for name in choose.INSTALLABLE:
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert installed_backends() == ()
