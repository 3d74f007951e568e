"""A batch without values on PyTorch."""

from contextlib import AbstractContextManager
from typing import Any

from harness.cases import Case


def fake_mode() -> AbstractContextManager[Any]:
    """Fake tensors beside the model's real weights."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def fake_samples(case: Case) -> tuple[Any, Any]:
    """Inputs and labels of one batch; call it within the mode."""
    import torch

    from harness.case_models import samples

    x, y = samples(case, 1)
    return (
        torch.empty((case.batch_size, *x.shape[1:]), dtype=getattr(torch, x.dtype.name)),
        torch.empty((case.batch_size,), dtype=getattr(torch, y.dtype.name)),
    )
