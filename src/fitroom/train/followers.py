"""Processes that train along with the first one: they compute the same, and print and save nothing."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fitroom.distribution.current import Distribution

_WRITING_CALLBACKS = (
    "ModelCheckpoint",
    "CSVLogger",
    "TensorBoard",
    "BackupAndRestore",
    "OrbaxCheckpoint",
    "RemoteMonitor",
    "ProgbarLogger",
)
"""Callbacks of Keras that write files, or to the terminal; none of them changes the training."""


def callbacks_of_follower(callbacks: Any) -> Any:
    """The callbacks without those of Keras that write."""
    import keras

    known = tuple(kind for name in _WRITING_CALLBACKS if (kind := getattr(keras.callbacks, name, None)) is not None)
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.callbacks = [each for each in callbacks.callbacks if not isinstance(each, known)]
        return callbacks
    given = callbacks if isinstance(callbacks, list | tuple) else [] if callbacks is None else [callbacks]
    return [each for each in given if not isinstance(each, known)]


@contextmanager
def own_run_folder(run_dir: str | Path, distribution: Distribution) -> Iterator[str | Path]:
    """The run folder for the first process, a copy of it for each other one, which reads the same checkpoint there."""
    with tempfile.TemporaryDirectory(prefix="fitroom-", ignore_cleanup_errors=True) as name:
        own = Path(name) / "run"
        given = Path(run_dir).expanduser()
        if not distribution.is_first_process and given.is_dir():
            shutil.copytree(given, own, ignore=shutil.ignore_patterns("*.lock", "lock"))
        distribution.wait()  # the first process begins to write when all have their copies
        yield given if distribution.is_first_process else own
