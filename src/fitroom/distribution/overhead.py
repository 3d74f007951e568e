"""What several devices add to the memory of each, beside its share of the batch."""

from collections.abc import Mapping

NCCL_BYTES = 256 * 2**20
"""What NCCL takes of a card outside of the framework's allocator: not measured. It is computed from NCCL's documented
defaults (docs.nvidia.com, "NCCL environment variables"): buffers of 4 MiB (NCCL_BUFFSIZE), one to send and one to
receive, on each of up to 32 channels (NCCL_MAX_NCHANNELS)."""

GRADIENT_BUCKETS = "gradient buckets"
REDUCED_GRADIENTS = "reduced gradients"
ACCUMULATED_GRADIENTS = "accumulated gradients"
NCCL = "NCCL, not measured"


def allocator_bytes(backend: str, gradient_bytes: int, *, compiled_together: bool) -> Mapping[str, int]:
    """What the framework's own distribution takes of its allocator on each device, by what it is for.

    With `compiled_together` the estimate is of a program for all devices, which has its reductions in it.

    >>> allocator_bytes("torch", 100, compiled_together=False)
    {'gradient buckets': 100}
    """
    if backend == "torch":
        # DistributedDataParallel keeps a flat copy of all gradients; first_bucket and others add up to their size.
        return {GRADIENT_BUCKETS: gradient_bytes}
    if backend == "tensorflow":
        # The sum before a micro-batch is held beside the sum after it, and what is reduced beside what goes in.
        return {ACCUMULATED_GRADIENTS: gradient_bytes, REDUCED_GRADIENTS: gradient_bytes}
    return {} if compiled_together else {REDUCED_GRADIENTS: gradient_bytes}
