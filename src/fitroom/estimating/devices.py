"""The estimate of a step on several devices: the share of one of them, and what distribution adds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fitroom.distribution.overhead import NCCL, NCCL_BYTES, allocator_bytes
from fitroom.distribution.shares import check_batch
from fitroom.errors import BackendError, InputError
from fitroom.recipe import Recipe
from fitroom.units import format_bytes

BATCH_STATISTICS = {
    "jax": "the samples of all devices",
    "tensorflow": "the samples of its own replica, those of all with synchronized=True",
    "torch": "the samples of its own process; Keras refuses synchronized=True on PyTorch",
}
"""What BatchNormalization sees in training on several devices."""


NEVER_SHARDED = {
    "tensorflow": "TensorFlow's strategies keep all weights on every card.",
    "torch": "On PyTorch every process keeps all weights: FSDP2 does not see Keras's variables.",
}
"""Why a backend cannot divide the weights of a model among cards."""


def why_not_sharded(backend: str, devices: int) -> str | None:
    """Why no plan can divide weights among these devices, in a sentence; None where it can."""
    if devices == 1:
        return "With more cards, JAX can divide weights and optimizer state among them."
    if backend in NEVER_SHARDED:
        return f"{NEVER_SHARDED[backend]} JAX can divide them among the cards: --backend jax."
    if not compiles_for_all(backend, Recipe()):
        return "Whether it would with weights divided among the cards needs XLA's compiler: pip install 'fitroom[xla]'."
    return None


@dataclass(frozen=True, kw_only=True)
class SpreadRequest:
    """How many devices share a batch on a backend."""

    devices: int
    shard_weights: bool
    backend: str
    compiles: bool
    """Whether the backend compiles one program for all devices, and the compiler is there."""

    def check(self, batch_size: int, *, measure: bool, training: bool) -> None:
        """Raise an error for what cannot be estimated."""
        if isinstance(self.devices, bool) or not isinstance(self.devices, int) or self.devices < 1:
            raise InputError(f"`devices` must be a number of devices. Received: {self.devices!r}.", hint="such as 4")
        check_batch(batch_size, self.devices)
        if self.devices > 1 and measure:
            raise InputError(
                "A step on several devices is predicted, not measured. Received: both.", hint="leave one of the two out"
            )
        if self.shard_weights and self.devices == 1:
            raise InputError(
                "`shard_weights` divides weights and optimizer among several devices. Received: one device.",
                hint="add --devices N, or leave it out",
            )
        if self.shard_weights and self.backend in NEVER_SHARDED:
            raise BackendError(
                f"Weights are sharded on JAX only. Received: {self.backend}. {NEVER_SHARDED[self.backend]}",
                hint="--backend jax",
            )
        if self.shard_weights and not self.compiles:
            raise BackendError(
                "Sharded weights are estimated by XLA's compiler, which is not installed or not used without jit.",
                hint="pip install 'fitroom[xla]'",
            )

    def share(self, batch_size: int) -> int:
        """The largest share of a batch."""
        return -(-batch_size // self.devices)

    def traced_devices(self, batch_size: int, recipe: Recipe) -> int:
        """How many devices the program that is traced is for: JAX compiles one for all of them."""
        is_whole = not recipe.is_split(self.share(batch_size))
        return self.devices if self.compiles and (is_whole or self.shard_weights) else 1

    def traced_batch(self, batch_size: int, recipe: Recipe) -> int:
        """The samples of the program that is traced, the same for every device."""
        return self.share(batch_size) * self.traced_devices(batch_size, recipe)

    def added_bytes(self, model: Any, batch_size: int, recipe: Recipe) -> Mapping[str, int]:
        """What distribution adds on a device, by what it is for."""
        if self.devices == 1:
            return {}
        together = self.traced_devices(batch_size, recipe) > 1
        found = dict(allocator_bytes(self.backend, gradient_bytes(model), compiled_together=together))
        return found | {NCCL: NCCL_BYTES}

    def notes(self, batch_size: int, added: Mapping[str, int]) -> tuple[str, ...]:
        """What the reader should know."""
        if not added:
            return ()
        share = self.share(batch_size)
        return (
            f"Per device: each of {self.devices} gets up to {share} of {batch_size} samples; weights and optimizer are "
            f"{'divided among them' if self.shard_weights else 'on each'}.",
            "Distribution adds to what is needed: "
            + ", ".join(f"{format_bytes(size)} for {name}" for name, size in added.items())
            + ". NCCL's share is computed from its documented defaults.",
            f"BatchNormalization would see {BATCH_STATISTICS[self.backend]}.",
        )


def compiles_for_all(backend: str, recipe: Recipe) -> bool:
    """Whether a backend compiles one program for all devices, with a compiler that is installed."""
    if backend != "jax" or recipe.jit is False:
        return False
    from fitroom.backends.jax.trace.compiler import compiler_version

    return compiler_version() is not None


def gradient_bytes(model: Any) -> int:
    """The size of all gradients of a model."""
    from fitroom.remat.shapes import num_bytes  # it brings NumPy

    return sum(num_bytes(variable.shape, variable.dtype) for variable in model.trainable_variables)
