"""The flowers of the demo and the tutorial."""

import subprocess
import sys
from pathlib import Path

from PIL import Image

SCRIPT = Path(__file__).parents[2] / "examples" / "drawn_flowers.py"
KINDS = ["daisy", "dandelion", "rose", "sunflower", "tulip"]


def draw(folder, *options):
    subprocess.run([sys.executable, SCRIPT, folder, *map(str, options)], check=True, capture_output=True)
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in sorted(folder.rglob("*.jpg"))}


def test_every_kind_has_a_folder_of_real_jpeg_files(tmp_path):
    drawn = draw(tmp_path, "--count", 12, "--size", 48)
    assert sorted(path.name for path in tmp_path.iterdir()) == KINDS
    assert len(drawn) == 12
    for file in drawn:
        with Image.open(tmp_path / file) as picture:
            picture.load()
            assert picture.format == "JPEG"
            assert picture.height == 48 <= picture.width


def test_a_picture_depends_on_seed_kind_and_number_alone(tmp_path):
    few = draw(tmp_path / "few", "--count", 5, "--size", 48, "--seed", 1)
    more = draw(tmp_path / "more", "--count", 10, "--size", 48, "--seed", 1)
    others = draw(tmp_path / "others", "--count", 5, "--size", 48, "--seed", 2)
    assert few.items() <= more.items()
    assert len(set(more.values())) == 10
    assert not set(few.values()) & set(others.values())
