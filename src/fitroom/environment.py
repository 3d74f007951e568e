"""Every environment variable that fitroom reads for itself.

    FITROOM_CACHE_DIR     where estimates, scans of folders, decoded images and compiled programs are cached; default:
                          the user's cache folder
    FITROOM_NO_CACHE      set to anything: neither read nor write the cache
    FITROOM_NO_CORRECTIONS
                          set to anything: neither use nor keep measured steps that correct estimates
    FITROOM_RESTARTS      how many processes of this command ran before this one, as it restarts where memory stays
                          taken; set by fitroom itself
    FITROOM_VOTE_SECONDS  how long a process of a training on several devices waits for the others; default: 600
    FITROOM_DEVICES, FITROOM_VISIBLE, FITROOM_LAUNCHED, FITROOM_SEED, FITROOM_LOGS
                          what `fitroom run --devices` tells the processes that it starts; set by fitroom itself
    FITROOM_TF_COMPILER   where the XLA compiler for TensorFlow's steps is; default: in the user's data folder

`KERAS_BACKEND`, `CUDA_VISIBLE_DEVICES` and the like belong to the frameworks and are obeyed where they matter.
"""

import os
from pathlib import Path

RESTARTS = "FITROOM_RESTARTS"
DEVICES = "FITROOM_DEVICES"
VISIBLE = "FITROOM_VISIBLE"
LAUNCHED = "FITROOM_LAUNCHED"
SEED = "FITROOM_SEED"
LOGS = "FITROOM_LOGS"
VOTE_SECONDS = "FITROOM_VOTE_SECONDS"
NO_CORRECTIONS = "FITROOM_NO_CORRECTIONS"


def restarts_so_far() -> int:
    """How many processes of this command ran out of memory, each followed by a fresh one."""
    number = os.environ.get(RESTARTS, "")
    return int(number) if number.isdigit() else 0


def vote_seconds() -> float:
    """How long a process of a training on several devices waits for the others before it gives up."""
    try:
        return max(1.0, float(os.environ.get(VOTE_SECONDS, "")))
    except ValueError:
        return 600.0


def cache_folder() -> Path | None:
    """The folder of cached estimates, scans, images and programs; None where caching is off."""
    if os.environ.get("FITROOM_NO_CACHE"):
        return None
    if folder := os.environ.get("FITROOM_CACHE_DIR"):
        return Path(folder)
    import platformdirs

    return Path(platformdirs.user_cache_dir("fitroom", appauthor=False))


def corrections_folder() -> Path | None:
    """The folder of measured steps that correct estimates; None where caching or corrections are off."""
    folder = cache_folder()
    return None if folder is None or os.environ.get(NO_CORRECTIONS) else folder / "corrections"


def tensorflow_compiler_folder() -> Path:
    """The folder of the XLA compiler for TensorFlow's jitted steps; it may not exist."""
    if folder := os.environ.get("FITROOM_TF_COMPILER"):
        return Path(folder)
    import platformdirs

    return Path(platformdirs.user_data_dir("fitroom", appauthor=False)) / "tensorflow-compiler"
