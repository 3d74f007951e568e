"""The memory of a step measured on the card in this machine, on values that are not the model's."""

from collections.abc import Iterator
from contextlib import contextmanager

import keras
import torch

from fitroom.backends.torch.trace.borrowed_variables import borrow_variables
from fitroom.backends.torch.trace.zero_step import Observer, TorchStep
from fitroom.cards.catalogue import Card
from fitroom.cards.nvml import find_live_gpu
from fitroom.errors import BackendError

_DEVICE = "cuda:0"


def check_card(card: Card) -> None:
    """Raise InputError where the card is not in this machine, BackendError where PyTorch does not see it."""
    find_live_gpu(card)
    if not torch.cuda.is_available():
        raise BackendError(
            "PyTorch does not see the card in this machine.", hint="does `torch.cuda.is_available()` return True?"
        )


def measure_peak_bytes(step: TorchStep, limit_bytes: int) -> int:
    """The allocator's peak in a steady step, less what was on the card before."""
    variables = [each.variable for each in step.state]
    with _limited(limit_bytes), keras.device(_DEVICE):
        torch.cuda.empty_cache()
        torch._C._cuda_clearCublasWorkspaces()  # this step's own are counted
        before_bytes = torch.cuda.memory_allocated()
        try:
            with borrow_variables(step.model, variables, _DEVICE):
                torch.nn.Module.train(step.model, step.training)
                batch = result = None
                for _ in range(step.least_runs):
                    torch.cuda.reset_peak_memory_stats()
                    batch = step.batch(_DEVICE, Observer())
                    result = step.function(batch)
                    torch.cuda.synchronize()
                del batch, result
        except torch.OutOfMemoryError as error:
            raise BackendError(
                "The step ran out of memory on the card.",
                hint="a smaller --batch-size; without --measure it is predicted",
            ) from error
        return int(torch.cuda.max_memory_allocated()) - int(before_bytes)


@contextmanager
def _limited(limit_bytes: int) -> Iterator[None]:
    """Let the allocator take no more than the limit."""
    fraction = torch.cuda.get_per_process_memory_fraction()
    total_bytes = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(limit_bytes / total_bytes, 1.0))
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(fraction)
        torch.cuda.empty_cache()
