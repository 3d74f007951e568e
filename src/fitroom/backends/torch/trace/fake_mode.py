"""Fake tensors: shapes, strides and storages without memory."""

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_iter, tree_map, tree_map_only

DEVICE = "cpu:0"
"""Where fake tensors stand for what is on the card. Those on "cpu", without a number, stand for arrays of the host:
PyTorch keeps the two apart as it would, and Keras, which works around what the CPU lacks, asks for "cpu" by name."""

_IMPORTED_BY_FAKE_TENSORS = (
    "torch._dynamo.source",
    "torch.distributed.tensor",
    "torch.fx.experimental.symbolic_shapes",
)
_ON_CARD = torch.device(DEVICE)
_PLAIN = frozenset((type(None), bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format))
_MOST_NUMBERS = 64
"""PyTorch itself keeps the value of single numbers alone."""


def import_ahead() -> None:
    """Import what PyTorch imports with the first fake tensors.

    While a step is recorded it would make objects by which Python collects garbage sooner than in training.
    """
    for name in _IMPORTED_BY_FAKE_TENSORS:
        with suppress(ImportError):
            importlib.import_module(name)


@contextmanager
def silence_fake_tensor_log() -> Iterator[None]:
    """Silence the traceback that PyTorch logs for what fake tensors cannot do: the error itself is raised."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


class FakeMode(FakeTensorMode):  # type: ignore[misc]
    """Makes every tensor a fake one, and real ones fake where they are used."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self._stand_ins: dict[int, tuple[Any, Any]] = {}
        """By the id of a tensor that is not on the card: the tensor, so that it stays, and one there."""
        self._of_numbers: dict[int, Any] = {}
        """Tensors made of Python's lists, by id: PyTorch makes them on the host, whatever device was asked for."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else every operation goes through PyTorch's compiler

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            made = self.dispatch(func, types, args, kwargs or {})
        except RuntimeError:
            if not any(map(self._is_held_by_layer, tree_iter((args, kwargs)))):
                raise
            args, kwargs = tree_map(self._on_the_card, (args, kwargs or {}))
            return self.dispatch(func, types, args, kwargs)
        if func is torch.ops.aten.lift_fresh.default:
            self._of_numbers[id(made)] = made
            return made
        return tree_map_only(FakeTensor, lambda one: self._where_asked(one, args, kwargs or {}), made)

    def _prep_args_for_hash(self, result: list[Any], args: Any, *rest: Any) -> None:
        """What tells two calls of an operation apart, by which PyTorch finds the shape of a result that it knows.

        PyTorch's own looks at every property of every tensor, for a third of the time that tracing takes. Of plain
        tensors these tell all; whatever else there is, is left to PyTorch.
        """
        if isinstance(args, dict):
            args = (*args, *args.values())
        result.append(len(args))
        for value in args:
            kind = type(value)
            result.append(kind)
            if kind in _PLAIN:
                result.append(value)
            elif kind is FakeTensor and value.fake_mode is self and value.constant is None and _is_plain(value):
                storage = value.untyped_storage()
                result += (value.dtype, value.shape, value.stride(), value.fake_device, value.storage_offset())
                result += (storage.nbytes(), value.requires_grad, value.is_inference())
            elif kind in (list, tuple):
                self._prep_args_for_hash(result, value, *rest)
            else:
                super()._prep_args_for_hash(result, [value], *rest)

    def may_turn_const(self, t: Any) -> bool:
        """Whether a tensor made of numbers keeps them: lists too, such as the places at which a tensor is split."""
        return (
            t.numel() <= _MOST_NUMBERS
            and t.layout == torch.strided
            and t.device.type != "meta"
            and not self.is_our_fake(t)
        )

    def _where_asked(self, made: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """A tensor of known values on the card, where it was asked for there or what it is made of is there.

        PyTorch computes known values on the host, and leaves them there. Single numbers may stay: they go with either.
        """
        if made.constant is None or made.numel() == 1 or made.device == _ON_CARD:
            return made
        asked = kwargs.get("device")
        places = [asked] if asked is not None else [one.device for one in tree_iter(args) if _is_fake(one)]
        if _ON_CARD not in map(torch.device, places):
            return made
        on_card = self._like_on_card(made)
        on_card.constant = made.constant
        self.fake_tensor_converter.add_constant_storage_mapping(on_card)  # a change in place ends the knowledge
        return on_card

    def _is_held_by_layer(self, value: Any) -> bool:
        has_values = _is_fake(value) and value.constant is not None  # it was computed from numbers
        return has_values or _is_real(value) or id(value) in self._of_numbers

    def _on_the_card(self, value: Any) -> Any:
        """The tensor on the card that stands for one that a layer holds elsewhere; other values as they are."""
        if not self._is_held_by_layer(value):
            return value
        if id(value) not in self._stand_ins:
            self._stand_ins[id(value)] = (value, self._like_on_card(value))
        return self._stand_ins[id(value)][1]

    def _like_on_card(self, value: Any) -> Any:
        with self:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=DEVICE)


def _is_plain(tensor: Any) -> bool:
    return tensor.layout == torch.strided and not tensor.is_conj() and not tensor.is_neg()


def _is_real(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not _is_fake(value)


def _is_fake(value: Any) -> bool:
    return isinstance(value, FakeTensor)
