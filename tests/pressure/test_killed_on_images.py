"""A run that is killed while it reads a folder of images."""

import pytest

from kills import trained
from processes import ROOT, needs
from sample_pictures import class_folders


@pytest.mark.slow
def test_killed_at_random_moments_training_on_a_folder_ends_bit_for_bit_the_same(tmp_path, monkeypatch):
    needs("torch")
    monkeypatch.setenv("FITROOM_CACHE_DIR", str(tmp_path / "cache"))
    folder = class_folders(tmp_path / "set", {"daisy": 60, "rose": 50}, size=(90, 80))
    monkeypatch.setenv("PICTURES", str(folder))
    script = ROOT / "tests" / "helpers" / "killed_pictures.py"
    expected, _ = trained(tmp_path / "undisturbed", "torch", script=script)
    found, done = trained(tmp_path / "killed", "torch", kills=2, seed=3, script=script)
    assert done
    assert found == expected
