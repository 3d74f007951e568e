"""`fitroom lean`, `compress` and `export` as they are typed."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from picture_runs import LEARNS, TRAIN, fitroom, make_pictures
from processes import needs

TINY = f"{Path(__file__).parents[1] / 'fixtures' / 'tiny.py'}:make_model"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a run of `fitroom train` in runs/a."""
    needs("torch")
    folder = make_pictures(tmp_path_factory.mktemp("lean"))
    done = fitroom(folder, *TRAIN, *LEARNS, "--run-dir", "runs/a", backend="torch")
    assert done.returncode == 0, done.stderr
    return folder


def test_lean_estimates_each_change(tmp_path):
    needs("torch")
    done = fitroom(tmp_path, "lean", TINY, "--json", "--plot", "lean.svg", "--gpu", "T4", backend="torch")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = {row["name"]: row for row in found["rows"]}
    pruned = rows["channels pruned by half"]
    assert pruned["peak_bytes"] < found["own"]["peak_bytes"]
    assert pruned["parameters"] < found["own"]["parameters"]
    assert not pruned["is_interpolated"]
    assert sum(not row["is_interpolated"] for row in found["rows"]) <= 7
    assert ElementTree.parse(tmp_path / "lean.svg").getroot().tag.endswith("svg")


@pytest.mark.slow
def test_lean_quick_marks_what_is_interpolated(tmp_path):
    needs("torch")
    done = fitroom(tmp_path, "lean", TINY, "--quick", "--gpu", "T4", backend="torch")
    assert done.returncode == 0, done.stderr
    assert "~" in done.stdout
    assert "interpolated" in done.stdout


def test_run_is_compressed_once_and_compared(trained):
    done = fitroom(trained, "compress", "runs/a", "--sparsity", "0.5", "--epochs", "1", "--json", backend="torch")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["images"] in (11, 12)  # one file is no image
    assert found["after"]["parameters"] < found["before"]["parameters"]
    assert 0 <= found["after"]["accuracy"] <= 1
    assert json.loads((trained / "runs" / "a-pruned" / "compress.json").read_text())["sparsity"] == 0.5
    other = fitroom(trained, "compress", "runs/a", "--sparsity", "0.25", backend="torch")
    assert other.returncode == 1
    assert "holds another compression" in other.stderr
    own = fitroom(trained, "compress", "runs/a", "--sparsity", "0.5", "--run-dir", "runs/a", backend="torch")
    assert own.returncode == 1
    assert "holds a run that is no compression" in own.stderr


def test_run_is_exported_and_checked_on_its_images(trained):
    pytest.importorskip("onnxscript")
    done = fitroom(trained, "export", "runs/a", "--format", "onnx", "--backend", "torch", "--int8", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["are_real"]
    assert found["same_class"] >= 0.9
    assert found["quantized_share"] > 0.5
    assert (trained / "runs" / "a" / "model-int8.onnx").exists()
    assert Path(trained / found["labels"]).read_text().split() == ["blue", "green", "red"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["onnx", "litert", "saved-model", "openvino", "torch"])
def test_each_format_answers_as_the_model_does(trained, name):
    done = fitroom(trained, "export", "runs/a", "--format", name, "--json", children_have_tensorflow=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["largest_difference"] < 1e-4
    assert found["same_class"] == 1


def test_wrong_calls_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    for arguments, said in (
        (("export", "nowhere", "--format", "onnx"), "There is no file or folder 'nowhere'"),
        (("export", "empty", "--format", "onx"), "did you mean 'onnx'"),
        (("compress", "empty", "--sparsity", "0.5"), "There is no run in empty"),
    ):
        done = fitroom(tmp_path, *arguments)
        assert done.returncode == 1
        assert said in done.stderr
