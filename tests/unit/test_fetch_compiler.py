"""The compiler near to TensorFlow's own is fetched whole or not at all, with an error that says what to do."""

import importlib.metadata

import pytest

from fitroom.backends.tensorflow.trace.jitted import fetch
from fitroom.backends.tensorflow.trace.jitted.library import LATEST_NEAR
from fitroom.errors import BackendError, InputError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    try:
        importlib.metadata.version("tensorflow-cpu")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("TensorFlow for the CPU is not installed")
    monkeypatch.setenv("FITROOM_TF_COMPILER", str(tmp_path / "compiler"))
    return tmp_path / "compiler"


def test_without_a_network_the_error_says_what_to_do_and_nothing_is_left(folder, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_RETRIES", "0")
    said = []
    with pytest.raises(BackendError, match="could not be downloaded") as error:
        fetch.fetch_compiler(said.append)
    assert "is there a network?" in error.value.hint
    assert f"155 MB, 430 MB on disk, into {folder}" in said[0]
    assert list(folder.parent.iterdir()) == []


def test_what_is_there_is_not_fetched_again(folder):
    package = folder / f"jax_cuda12_pjrt-{LATEST_NEAR}.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: jax-cuda12-pjrt\nVersion: {LATEST_NEAR}\n")
    (package / "RECORD").write_text("jax_plugins/xla_cuda12/xla_cuda_plugin.so,,\n")
    said = []
    assert fetch.fetch_compiler(said.append).version == LATEST_NEAR
    assert "already" in said[0]


def test_a_folder_of_something_else_is_left_alone(folder):
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="holds something else"):
        fetch.fetch_compiler(print)
    assert (folder / "thesis.txt").read_text() == "mine"
