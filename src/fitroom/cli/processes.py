"""A script in one process per device, for PyTorch: `torchrun`'s launcher starts and watches them.

The first process prints and saves. What the others say goes to files, of which the end is shown if one of them fails.
"""

import logging
import os
import secrets
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from fitroom.cards.nvml import all_gpus, live_gpus
from fitroom.distribution.selection import DeviceSelection
from fitroom.environment import DEVICES, LAUNCHED, LOGS, SEED, VISIBLE
from fitroom.errors import InputError
from fitroom.events import ALL_SAVED, PEER_LOST

_MOST_ON_CPU = 16
_LINES_SHOWN = 15


def is_launched() -> bool:
    """Whether this process is one of several that `launch` started."""
    return LAUNCHED in os.environ and "RANK" in os.environ


def choose_processes(selection: DeviceSelection) -> tuple[str, ...]:
    """The device of each process to start, such as "gpu:0"; processes on the CPU where there is no card.

    Raises InputError where there are fewer cards than were asked for.
    """
    gpus = live_gpus()
    if gpus:
        return tuple(f"gpu:{number}" for number in selection.choose(len(gpus), kind="card"))
    if selection.count is None and selection.numbers is None:
        return ("cpu:0",)
    return tuple(f"cpu:{number}" for number in selection.choose(_MOST_ON_CPU, kind="process"))


def launch(devices: Sequence[str], words: Sequence[str]) -> None:
    """Run `fitroom` with these words in a process for each device. Ends this process where one of them fails."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="fitroom-", ignore_cleanup_errors=True) as folder:
        os.environ |= {
            LAUNCHED: "1",
            DEVICES: ",".join(devices),
            LOGS: folder,
            SEED: os.environ.get(SEED) or str(secrets.randbelow(2**31)),
        }
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // len(devices))))
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=len(devices),
            run_id=secrets.token_hex(8),
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            monitor_interval=0.2,
        )
        try:
            elastic_launch(config, sys.executable)("-m", "fitroom", *words)
        except ChildFailedError as error:
            sys.exit(_report_failure(error, devices, Path(folder)))
        except SignalException as error:
            sys.exit(128 + int(error.sigval))


def join() -> None:
    """Begin as one of several processes: its own device, its own log, the seed that all have."""
    rank = int(os.environ["RANK"])
    device = os.environ[DEVICES].split(",")[rank]
    kind, _, number = device.partition(":")
    if kind == "gpu":
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = [name.strip() for name in visible.split(",")] if visible else [str(gpu.index) for gpu in all_gpus()]
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ[VISIBLE] = names[int(number)]
    if rank:
        sys.stdout.flush()
        sys.stderr.flush()
        log = os.open(Path(os.environ[LOGS]) / f"{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(log, 2)


def seed_alike() -> None:
    """Seed the generators of Python, NumPy and PyTorch alike in all processes. A script's own seeds come after it."""
    import random

    import numpy as np
    import torch

    seed = int(os.environ[SEED])
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _report_failure(error: Any, devices: Sequence[str], folder: Path) -> int:
    """Say which process failed first, and show the end of what it said. Returns the exit code."""
    rank, failure = error.get_first_failure()
    logs = {int(log.stem): log.read_text(errors="replace").splitlines() for log in sorted(folder.glob("*.log"))}
    if (culprit := _find_culprit(rank, logs)) != rank and culprit in error.failures:
        rank, failure = culprit, error.failures[culprit]
    code = int(failure.exitcode)
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    click.echo(f"fitroom: process {rank} of {len(devices)} ({devices[rank]}) {how}; the run is over.", err=True)
    for line in logs.get(rank, [])[-_LINES_SHOWN:]:
        click.echo(f"  [{devices[rank]}] {line}", err=True)
    for lines in logs.values():  # any of those that are left may have written the last checkpoint
        for line in lines:
            if ALL_SAVED in line:
                click.echo(line, err=True)
    if code < 0:
        fewer = len(devices) - 1
        click.echo(
            f"hint: with --run-dir the same command resumes; --devices {fewer} does so with {fewer} of them", err=True
        )
    return 128 - code if code < 0 else code


def _find_culprit(first: int, logs: Mapping[int, Sequence[str]]) -> int:
    """The process whose error is not that another one is gone; the one that ended first where none shows.

    The first to end may be one that lost another. What the first process says is not in `logs`: it stands on the
    terminal already.
    """
    for rank, lines in logs.items():
        failed = any(line.startswith(("Traceback (most recent", "error: ")) for line in lines)
        if failed and not any(PEER_LOST in line for line in lines):
            return rank
    return first


def check_one_machine() -> None:
    """Raise InputError under a launcher of the user's own."""
    if "RANK" in os.environ and LAUNCHED not in os.environ:
        raise InputError(
            "`fitroom run --devices` starts the processes itself, and this one was started by torchrun already.",
            hint='leave torchrun out; or leave --devices out and use `with fitroom.devices("all"):` in the script',
        )
