"""What every backend offers. The rest of fitroom trains and traces through this alone.

The backend of a framework is a package beside this file, named as Keras names the framework: `jax`, `tensorflow`,
`torch`. The three have the same files: `backend.py` (the class), `device.py` (devices and readings), `out_of_memory.py`
(recognising it), `limit.py` (less memory than there is, set before the framework starts), `train/` (training steps,
each all of it or nothing) and `trace/` (the memory of a step without running it). `fake` is a scripted backend for
tests, with a file in place of each folder; `xla` is no backend but what JAX and TensorFlow share. A capability that a
framework lacks is a flag here, not a surprise at run time.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from fitroom.batch import Batch, StepName
from fitroom.distribution.current import Distribution
from fitroom.distribution.selection import DeviceSelection
from fitroom.memory.step import PendingStep, StepRequest, TracedStep
from fitroom.recipe import Remat

Name = Literal["tensorflow", "jax", "torch", "fake"]


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device that the framework sees."""

    name: str
    """As fitroom names it on every backend: "gpu:0", "cpu:0"."""

    kind: Literal["gpu", "cpu", "other"]
    description: str | None
    """The card's name, or None where the framework does not tell."""


@dataclass(frozen=True, kw_only=True)
class MemoryReading:
    """The framework's own allocator counters for one device. None where it does not count."""

    in_use_bytes: int | None
    """Held by live tensors now."""

    peak_bytes: int | None
    """The most that was in use since the start or the last reset."""

    reserved_bytes: int | None
    """Taken from the device, in use or kept for later."""

    limit_bytes: int | None
    """The most the allocator may take."""


@dataclass(frozen=True, kw_only=True)
class FusedLayer:
    """A layer for whose kind a framework has a fused operation."""

    path: str
    kind: str
    """Its class in Keras."""

    operation: str | None
    """The operation that serves it; None where it is left to Keras."""

    why_not: str | None = None
    """Why it is left to Keras."""


class Stepper(Protocol):
    """Carries out the steps of one compiled model, each all of it or nothing.

    What a step raises, out of memory or anything else, it raises with the model as it was before the step: weights,
    optimizer, statistics, random generators, metrics. When it returns, the model's variables hold the new values; a
    framework that works ahead may still be computing them, but has looked whether there is room.
    """

    batches_ahead: int
    """How many batches a thread makes ahead of the one that is being trained on, each passed through `prefetch`.

    These batches wait on the host: their number costs memory of the host, not of the card. What is copied to the card
    ahead of its turn is decided in each backend's `train/transfer.py` and is at most the next batch: JAX copies the
    next batch, TensorFlow the next micro-batch, PyTorch nothing.
    """

    def why_whole(self, step: StepName = "train_step") -> str | None:
        """Why this step must take its batches whole, or None where micro-batches are possible, as far as is known."""

    def samples_per_device(self, batch_size: int) -> int:
        """The most samples of a batch of this size that one device gets; all of them where one device trains."""

    def trust(self, samples: int) -> None:
        """Skip the cautious trial run, where a backend has one, for micro-batches up to this size: an estimate fits."""

    def prepare(self, batch: Batch) -> None:
        """Make all variables that training on batches like this one needs: weights, optimizer, metrics."""

    def train(self, batch: Batch, micro_batch: int) -> dict[str, Any]:
        """One optimizer update from a whole batch, carried out in micro-batches of at most `micro_batch` samples, each
        device's share in micro-batches of its own.

        The logs are those of Keras's `train_step` on the whole batch, as the framework's scalars.
        """

    def test(self, batch: Batch, micro_batch: int) -> dict[str, Any]:
        """One batch of `evaluate` in micro-batches of at most `micro_batch`; the logs of Keras's `test_step`."""

    def predict(self, x: Any) -> Any:
        """The model's outputs for some inputs, as NumPy arrays in the structure of the outputs."""

    def predict_batch(self, batch: Batch, micro_batch: int) -> Any:
        """One batch of `predict` in micro-batches of at most `micro_batch`; the outputs of all of it, on the host.

        What a forward pass changes, such as the state of random generators, it changes as in Keras's `predict`.
        """

    def join(self, outputs: Sequence[Any]) -> Any:
        """The outputs of several batches of `predict`, put together as Keras does."""

    def prefetch(self, batch: Batch) -> Batch:
        """Prepare a batch on the host for its transfer to the device, while another batch is being trained on.

        Called from another thread, for each batch in the order of training. Returns the batch to train on. It never
        raises for want of memory: it then returns the batch as it was given.
        """

    def pause(self) -> None:
        """Drop what was prefetched and not taken: no batch follows for now."""

    def forget(self) -> None:
        """Drop what earlier sizes left behind: compiled programs, buffers of gradients."""


Distributing = AbstractContextManager[Distribution]
"""What `distribute` returns: within the block several devices train."""


class Backend(Protocol):
    """One framework, seen from the rest of fitroom."""

    name: Name
    can_reset_peak: bool
    """Whether `reset_peak` works; where not, a peak is the process's."""

    can_trace: bool
    """Whether `trace` works in this version of fitroom."""

    def devices(self) -> tuple[Device, ...]:
        """The devices the framework sees, the one it would train on first."""

    def read_memory(self, device: Device, *, wait: bool = True) -> MemoryReading:
        """The allocator's counters now, after pending work is done; without `wait` while it runs, from any thread."""

    def reset_peak(self, device: Device, *, wait: bool = True) -> None:
        """Start the peak anew from what is in use. Raises BackendError where `can_reset_peak` is false.

        Without `wait` pending work is not waited for.
        """

    def release(self) -> None:
        """Give back what is cached and referenced by nothing: compiled functions, free blocks, cycles."""

    def live_arrays(self) -> list[tuple[Any, int]]:
        """The arrays that Python can reach and the bytes of each; memory that two of them share is counted once."""

    def count_programs(self) -> dict[tuple[int, str], int]:
        """By `id` and name of each function that the framework traces or compiles: how many versions it keeps."""

    def begin_round(self) -> Callable[[], tuple[str, ...]]:
        """Note what is there before a round of a loop. The function that comes back ends the round.

        It gives back what the framework keeps of the round and nobody can use any more; what is in use, whenever it was
        made, works as before. It returns a sentence for each thing that the framework cannot give back.
        """

    def fail_at_once(self) -> str | None:
        """Have allocations fail where memory is out, instead of waiting for some. To be called before devices are used.

        Returns what to tell the user where it is too late, else None.
        """

    def keep_programs(self, folder: Path) -> None:
        """Keep what is compiled for a card in a folder, where the next process finds it and compiles nothing."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether the device ran out of memory: by the error's class first, by its text second."""

    def list_fused(self, model: Any, *, jit: bool | None = None) -> tuple[FusedLayer, ...]:
        """List the layers of a built model that `Recipe(kernels="fused")` concerns, served or not.

        Empty where the framework's compiler fuses operations by itself, as XLA does. `jit` says whether the step is
        compiled; None: as Keras would have it on a card.
        """

    def trace(self, model: Any, request: StepRequest) -> TracedStep:
        """The step's memory without running it. Raises BackendError where `can_trace` is false."""

    def distribute(
        self, selection: DeviceSelection, weights: Sequence[float] | None, *, shard_weights: bool = False
    ) -> Distributing:
        """Train on several devices within the block. `weights` are the devices' shares of a batch, None for equal ones.
        With `shard_weights` weights and optimizer are divided among the devices, too.

        Raises InputError where there are fewer devices than were asked for, and BackendError where the framework cannot
        share a batch out so.
        """

    def stepper(
        self,
        model: Any,
        *,
        jit: bool | None,
        remat: str | Remat | None = None,
        kernels: str | None = None,
        attention_dropout: str | None = None,
    ) -> Stepper:
        """Steps of a compiled and built model.

        `jit` is `jit_compile` where it differs from the model's own; `remat` says which segments of the model are
        recomputed in the backward pass; `kernels` is "fused" only where `list_fused` finds layers that are served,
        `attention_dropout` on PyTorch alone.
        """


@runtime_checkable
class TracesAhead(Protocol):
    """A backend whose steps are compiled by another process: this one can trace the next step meanwhile."""

    def begin_trace(self, model: Any, request: StepRequest) -> PendingStep:
        """Trace a step and have it compiled. `trace` is the same with its result waited for."""
