"""`fitroom` as it is typed, in a process of its own, on images that are quick to make; what is wrong with its end."""

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from harness.paths import SOURCE, TEST_HELPERS

sys.path.insert(0, str(SOURCE))
sys.path.insert(0, str(TEST_HELPERS))
from picture_runs import environment as environment
from picture_runs import make_pictures

HERE = Path(__file__).parent

TRAIN = (
    *("train", "pictures", "--model", "tiny.py:make_model", "--image-size", "32", "--batch-size", "8"),
    *("--learning-rate", "0.02", "--epochs", "3", "--unfreeze-after", "1"),
)
BACKENDS = ("torch", "jax", "tensorflow")
SECONDS = 240
"""After which a command hangs."""

_UNFORESEEN = ("this is unexpected", "Traceback (most recent call last)")


class Hangs(Exception):  # noqa: N818
    """A command that does not end."""


def place(folder: Path) -> Path:
    """A folder of images and a model in a file, made once."""
    if not (folder / "pictures").exists():
        make_pictures(folder)
    return folder


def fitroom(folder: Path, *arguments: str, backend: str, fault: Any = None, prefix: Any = ()) -> Any:
    """Run a command to its end, with a fault in it."""
    own = environment(backend) | {"FITROOM_CACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    paths = [str(SOURCE), str(TEST_HELPERS), own.get("PYTHONPATH", "")]
    own |= {"PYTHONPATH": os.pathsep.join(paths), "FAULT": json.dumps(fault)}
    command = [*prefix, sys.executable, str(HERE / "inject.py"), "fitroom", *arguments]
    try:
        return subprocess.run(
            command, cwd=folder, env=own, capture_output=True, timeout=SECONDS, text=True, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise Hangs(f"{' '.join(arguments[:3])} hangs") from None


def unforeseen(done: Any) -> str | None:
    """What an end says that no user should see."""
    said = done.stdout + done.stderr
    for mark in _UNFORESEEN:
        if mark in said:
            return " ".join(said[max(0, said.index(mark) - 300) :].split())[:600]
    return None


def state_of(run: Path) -> dict[str, Any]:
    """What a finished run is: its weights, history and results."""
    results = json.loads((run / "results.json").read_text())
    results.pop("sha256", None)
    history = json.loads((run / "history.json").read_text())
    return {"weights": weights_of(run / "model.keras"), "history": history, "results": results}


def weights_of(file: Path) -> str:
    """What a `.keras` file holds of weights, whatever day it was written on."""
    import h5py

    digest = hashlib.sha256()

    def add(name: str, value: Any) -> None:
        digest.update(name.encode())
        if hasattr(value, "shape"):
            digest.update(value[()].tobytes())

    with zipfile.ZipFile(file) as archive, archive.open("model.weights.h5") as member:
        h5py.File(member).visititems(add)
    return digest.hexdigest()


def left_over(run: Path) -> str | None:
    """What a finished run should not hold, or lack."""
    partial = [path.name for path in run.rglob("*.partial*")]
    if partial:
        return f"{partial[0]} is left"
    report = run / "report.html"
    if not report.exists() or not report.read_text(errors="replace").rstrip().endswith("</html>"):
        return "there is no whole report"
    return None
