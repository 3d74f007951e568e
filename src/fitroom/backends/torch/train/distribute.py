"""Several devices under PyTorch: a process for each, started by `torchrun`, joined for the length of a block."""

import atexit
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import keras
import torch
import torch.distributed as dist

from fitroom.backends.torch.train.processes import Processes, use_processes
from fitroom.distribution.current import Distribution
from fitroom.distribution.selection import DeviceSelection
from fitroom.distribution.shares import check_weights
from fitroom.environment import DEVICES, VISIBLE, vote_seconds
from fitroom.errors import BackendError, InputError

OWN_STATISTICS = "the samples of its own process; Keras refuses synchronized=True on PyTorch"
_FSDP = (
    "PyTorch's FSDP2 does not see the variables of Keras: it would shard modules whose weights Keras reads past it, "
    "and train nothing, without an error."
)


@contextmanager
def distribute(
    selection: DeviceSelection, weights: Sequence[float] | None, *, shard_weights: bool = False
) -> Iterator[Distribution]:
    """Join the processes that `torchrun` started, and train with them within the block."""
    if shard_weights:
        raise BackendError(
            f"Weights cannot be sharded on PyTorch. {_FSDP}",
            hint="JAX can: KERAS_BACKEND=jax; or a smaller model, a leaner optimizer, remat",
        )
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        with _one_device(selection) as distribution:
            yield distribution
        return
    count = len(selection.choose(world, kind="process"))
    if count != world:
        raise InputError(
            f"{world} processes were started, and {count} devices asked for.",
            hint=f'fitroom.devices("all"), or torchrun --nproc-per-node={count}',
        )
    weights = check_weights(weights, world)
    _check_devices()
    _take_own_card()
    if not dist.is_initialized():
        dist.init_process_group(_reducing_backend(), timeout=timedelta(seconds=vote_seconds()))
        atexit.register(_leave)  # it cannot be begun a second time in a process
    processes = Processes(weights)
    names = tuple(os.environ.get(DEVICES, "").split(",")) if os.environ.get(DEVICES) else ()
    with use_processes(processes), _saving_in_first(processes.rank):
        yield Distribution(
            devices=names if len(names) == world else tuple(f"process {number}" for number in range(world)),
            weights=weights,
            engine="DistributedDataParallel",
            batch_statistics=OWN_STATISTICS,
            process=processes.rank,
            num_processes=world,
            share=processes.share,
            any_of=processes.any_of,
            wait=processes.wait,
            claim=processes.claim,
            stop=processes.stop,
        )


_SAVING = ("save", "save_weights", "export")


@contextmanager
def _saving_in_first(rank: int) -> Iterator[None]:
    """Have models saved by the first process alone: in others Keras's methods for it do nothing within the block."""
    if rank == 0:
        yield
        return
    places = [(keras.Model, name) for name in _SAVING]
    places += [(module, name) for module in (keras.models, keras.saving) for name in ("save_model", "save_weights")]
    own = [(owner, name, getattr(owner, name)) for owner, name in places if hasattr(owner, name)]
    for owner, name, _ in own:
        setattr(owner, name, _save_nothing)
    try:
        yield
    finally:
        for owner, name, method in own:
            setattr(owner, name, method)


def _save_nothing(*arguments: Any, **options: Any) -> None:
    """Take the arguments of a method that saves, and save nothing."""


def _check_devices() -> None:
    """Raise InputError where the script chose a device of its own after fitroom had given it one."""
    given = os.environ.get(VISIBLE)
    if given is not None and os.environ.get("CUDA_VISIBLE_DEVICES", "") != given:
        raise InputError(
            f"The script sets CUDA_VISIBLE_DEVICES to {os.environ.get('CUDA_VISIBLE_DEVICES', '')!r}, and `--devices` "
            f"gave this process the device {given!r}.",
            hint="leave one of the two out",
        )
    if torch.cuda.is_available() and given is not None and torch.cuda.current_device() != 0:
        raise InputError(
            f"The script chose cuda:{torch.cuda.current_device()}, and `--devices` gave this process cuda:0 alone.",
            hint="leave `torch.cuda.set_device` out of the script, or --devices",
        )


def _take_own_card() -> None:
    """Give a process that torchrun started the card of its number, where the script left it on the first card."""
    cards = torch.cuda.device_count()
    if os.environ.get(VISIBLE) is not None or cards < 2 or torch.cuda.current_device() != 0:
        return
    number = int(os.environ.get("LOCAL_RANK", "0"))
    if number >= cards:
        raise InputError(
            f"torchrun started more processes than there are cards. Received: process {number} (they count from 0) on "
            f"a machine with {cards} cards.",
            hint=f"torchrun --nproc-per-node={cards}",
        )
    if number and torch.cuda.memory_allocated(0):
        raise InputError(
            f"This process is to train on cuda:{number}, and its model, or something else of it, is on cuda:0.",
            hint='torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before the model is made; or '
            "fitroom run --devices all train.py in place of torchrun",
        )
    torch.cuda.set_device(number)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def _one_device(selection: DeviceSelection) -> Iterator[Distribution]:
    available = torch.cuda.device_count()
    chosen = selection.choose(available or 1)
    if len(chosen) > 1:
        raise BackendError(
            f"PyTorch trains on several devices with a process for each. Received: {len(chosen)} devices in one.",
            hint="start the script by `fitroom run --devices all train.py`, or by torchrun",
        )
    if available:
        torch.cuda.set_device(chosen[0])
    name = f"gpu:{chosen[0]}" if available else "cpu:0"
    yield Distribution(devices=(name,), weights=(1.0,), engine="one device", batch_statistics="the batch, as always")


def _reducing_backend() -> str:
    """NCCL where every process has a card of its own, which it needs; else Gloo."""
    if not torch.cuda.is_available():
        return "gloo"
    own = {name.rpartition(":")[2] for name in os.environ.get(DEVICES, "").split(",") if name}
    has_own_cards = len(own) == int(os.environ["WORLD_SIZE"]) or torch.cuda.device_count() > 1
    return "cpu:gloo,cuda:nccl" if has_own_cards and dist.is_nccl_available() else "gloo"
