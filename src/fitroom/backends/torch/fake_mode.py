"""Fake tensors: shapes, strides and storages without memory."""

from typing import Any

from torch._subclasses.fake_tensor import FakeTensorMode


class FakeMode(FakeTensorMode):  # type: ignore[misc]
    """Makes every tensor a fake one, and real ones fake where they are used."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else PyTorch imports its compiler, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.dispatch(func, types, args, kwargs or {})
