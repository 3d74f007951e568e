"""Batches of pictures in a framework, and a run that is killed while it reads them."""

from pathlib import Path

import pytest

from kills import trained
from sample_pictures import class_folders
from test_backend_contract import needs, run_checks


def test_batches_of_pictures_in_keras_and_in_fit(tmp_path):
    needs("torch")
    run_checks(["data_checks.py"], backend="torch", keras_home=tmp_path)


@pytest.mark.slow
def test_killed_at_random_moments_training_on_a_folder_ends_bit_for_bit_the_same(tmp_path, monkeypatch):
    needs("torch")
    monkeypatch.setenv("FITROOM_CACHE_DIR", str(tmp_path / "cache"))
    folder = class_folders(tmp_path / "set", {"daisy": 60, "rose": 50}, size=(90, 80))
    monkeypatch.setenv("PICTURES", str(folder))
    script = Path(__file__).with_name("killed_pictures.py")
    expected, _ = trained(tmp_path / "undisturbed", "torch", script=script)
    found, done = trained(tmp_path / "killed", "torch", kills=2, seed=3, script=script)
    assert done
    assert found == expected
