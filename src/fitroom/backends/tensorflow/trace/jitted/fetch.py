"""Fetches the XLA compiler that is near to TensorFlow's own into its folder, with pip."""

import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from fitroom.backends.tensorflow.trace.jitted.library import (
    DISK_MB,
    DOWNLOAD_MB,
    LATEST_NEAR,
    PACKAGE,
    install_command,
    near_version,
)
from fitroom.backends.xla.library import CompilerLibrary, compiler_in
from fitroom.environment import tensorflow_compiler_folder
from fitroom.errors import BackendError, InputError

_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tf-nightly")


def fetch_compiler(say: Callable[[str], None]) -> CompilerLibrary:
    """Download the compiler, unless it is there. `say` is told before how large it is and where it goes.

    Raises BackendError where pip cannot get it, and leaves nothing half done then.
    """
    wanted, folder = _wanted_version(), tensorflow_compiler_folder()
    found = compiler_in(folder) if folder.exists() else None
    if found is not None and found.version == wanted:
        say(f"{found} is in {folder} already")
        return found
    if found is None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"The folder for TensorFlow's compiler holds something else. Received: {folder}.",
            hint="remove it, or set FITROOM_TF_COMPILER to another folder",
        )
    say(f"downloading {PACKAGE} {wanted} with pip: {DOWNLOAD_MB} MB, {DISK_MB} MB on disk, into {folder}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise BackendError(
            f"The compiler cannot be stored: {error}", hint="FITROOM_TF_COMPILER sets another folder"
        ) from error
    try:
        _install(wanted, beside)
        fetched = compiler_in(beside)
        if fetched is None:
            raise BackendError(f"{PACKAGE} {wanted} was downloaded and holds no XLA compiler.")
        if folder.exists():
            shutil.rmtree(folder)  # one of another version, or nothing
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    found = compiler_in(folder)
    assert found is not None, "it was there before the folder got its name"
    return found


def _install(wanted: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-input", "--disable-pip-version-check"]
    command += ["--quiet", "--only-binary", ":all:", "--target", str(folder), f"{PACKAGE}=={wanted}"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode == 0:
        return
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("ERROR")] or lines[-1:] or ["no message"]
    if any("No module named pip" in line for line in lines):
        raise BackendError(
            "The compiler is fetched with pip, which this Python does not have.",
            hint=f"uv {install_command(wanted)}",
        )
    raise BackendError(
        f"{PACKAGE} {wanted} could not be downloaded. pip said: {told[0].removeprefix('ERROR: ')[:300]}",
        hint="is there a network? On a machine that has one, and the same system and Python: "
        f"{install_command(wanted)}; then copy that folder here",
    )


def _wanted_version() -> str:
    for name in _TENSORFLOW:
        try:
            return near_version(importlib.metadata.version(name)) or LATEST_NEAR
        except importlib.metadata.PackageNotFoundError:
            continue
    raise BackendError("TensorFlow is not installed, and the compiler is for its steps.", hint="pip install tensorflow")
