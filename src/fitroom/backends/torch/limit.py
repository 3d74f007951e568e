"""A limit for PyTorch's allocator."""

import torch


def limit_memory(limit_bytes: int) -> str | None:
    """Limit the allocator of the first card. Returns why that is impossible, or None."""
    if not torch.cuda.is_available():
        return "PyTorch has no limit for memory but on CUDA"
    total_bytes = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total_bytes), 0)
    return None
