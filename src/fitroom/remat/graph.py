"""The calls of layers that a Functional or Sequential model is made of, in an order in which they can run.

Nested models are opened, so that a backbone under a new head is as many calls as it has layers. One that is called
twice stays a single call each time. The order follows one branch to its end before it takes up the next, which
leaves few tensors alive between two calls.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a layer or an operation."""

    name: str
    """The layer's path, as in "backbone/conv1"; with "#2" at its end for the second call of a layer."""

    operation: Any
    arguments: Any
    """What it is called with, as Keras keeps it in a node: symbolic tensors and constants."""

    inputs: tuple[int, ...]
    """Its tensors, as places in `LayerGraph.tensors`, each once."""

    outputs: tuple[int, ...]
    within: tuple[Any, ...] = ()
    """The models around it, outermost first, that were opened."""

    enters: bool = False
    """Whether this is only the entry into an opened model, which brings its inputs into the form that it wants."""


@dataclass(frozen=True, kw_only=True)
class LayerGraph:
    """A model's calls in an order in which they can run, and the tensors between them."""

    calls: tuple[Call, ...]
    tensors: tuple[Any, ...]
    """Keras's symbolic tensors."""

    places: dict[int, int]
    """The place of a symbolic tensor by its id. What leaves an opened model has two ids and one place."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @cached_property
    def made_by(self) -> dict[int, int]:
        """The call that makes each tensor; inputs of the model are made by none."""
        return {tensor: number for number, call in enumerate(self.calls) for tensor in call.outputs}

    @cached_property
    def used_by(self) -> dict[int, tuple[int, ...]]:
        """The calls that use each tensor; the end of the model counts as one more call."""
        used: dict[int, list[int]] = {}
        for number, call in enumerate(self.calls):
            for tensor in call.inputs:
                used.setdefault(tensor, []).append(number)
        for tensor in dict.fromkeys(self.outputs):
            used.setdefault(tensor, []).append(len(self.calls))
        return {tensor: tuple(users) for tensor, users in used.items()}

    def entering(self, start: int, stop: int) -> tuple[int, ...]:
        """The tensors that the calls from `start` to before `stop` use and do not make."""
        used = dict.fromkeys(tensor for call in self.calls[start:stop] for tensor in call.inputs)
        return tuple(tensor for tensor in used if not start <= self.made_by.get(tensor, -1) < stop)

    def leaving(self, start: int, stop: int) -> tuple[int, ...]:
        """The tensors that these calls make and that are used after them."""
        made = (tensor for call in self.calls[start:stop] for tensor in call.outputs)
        return tuple(tensor for tensor in made if max(self.used_by.get(tensor, (-1,))) >= stop)


def functional_of(model: Any) -> Any:
    """The Functional model that `model` is, or has inside; None for a model with a `call` of its own."""
    own_call = not type(model).call.__module__.startswith("keras.")
    if own_call or not hasattr(model, "layers"):
        return None
    functional = getattr(model, "_functional", model)  # no public name
    return functional if hasattr(functional, "_run_through_graph") else None


def layer_graph(model: Any) -> LayerGraph:
    """The graph of a Functional or Sequential model."""
    functional = functional_of(model)
    flat = _Flattened()
    flat.add(functional, prefix="", within=())
    inputs = tuple(flat.place(tensor) for tensor in functional.inputs)
    outputs = tuple(flat.place(tensor) for tensor in functional.outputs)
    calls = _ordered(flat.calls, outputs)
    return LayerGraph(
        calls=tuple(calls), tensors=tuple(flat.tensors), places=flat.places, inputs=inputs, outputs=outputs
    )


class _Flattened:
    """Calls and tensors as they are found, models within models opened."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.tensors: list[Any] = []
        self.places: dict[int, int] = {}
        self._names: Counter[str] = Counter()

    def place(self, tensor: Any) -> int:
        if id(tensor) not in self.places:
            self.places[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
        return self.places[id(tensor)]

    def add(self, functional: Any, *, prefix: str, within: tuple[Any, ...]) -> None:
        nodes = list(nodes_of(functional))
        times = Counter(id(node.operation) for node in nodes)
        for node in nodes:
            inner = functional_of(node.operation) if _can_be_opened(node, times) else None
            if inner is None:
                self._add_call(node, node.operation, node.outputs, prefix + node.operation.name, within)
                continue
            name = prefix + node.operation.name
            self._add_call(node, inner, inner.inputs, name, within, enters=True)
            self.add(inner, prefix=name + "/", within=(*within, node.operation))
            for outside, inside in zip(node.outputs, inner.outputs, strict=True):
                self.places[id(outside)] = self.place(inside)

    def _add_call(
        self,
        node: Any,
        operation: Any,
        outputs: Iterable[Any],
        name: str,
        within: tuple[Any, ...],
        *,
        enters: bool = False,
    ) -> None:
        self._names[name] += 1
        call = Call(
            name=name if self._names[name] == 1 else f"{name}#{self._names[name]}",
            operation=operation,
            arguments=node.arguments,
            inputs=tuple(dict.fromkeys(self.place(tensor) for tensor in node.input_tensors)),
            outputs=tuple(self.place(tensor) for tensor in outputs),
            within=within,
            enters=enters,
        )
        self.calls.append(call)


def nodes_of(functional: Any) -> Iterator[Any]:
    """The model's own calls, as Keras runs them."""
    for depth in sorted(functional._nodes_by_depth, reverse=True):
        yield from (node for node in functional._nodes_by_depth[depth] if node.operation and not node.is_input)


def _can_be_opened(node: Any, times: Counter[int]) -> bool:
    """Whether the call is of a model that can be taken apart: called once, with nothing but its inputs."""
    if not hasattr(node.operation, "layers") or times[id(node.operation)] > 1 or _is_changed(node.operation):
        return False
    arguments = node.arguments
    given = [value for name, value in arguments.kwargs.items() if name != "training" and value is not None]
    return len(arguments.args) == 1 and not given


def _is_changed(model: Any) -> bool:
    """Whether something happens around a model's call that would not where it is opened: a `call` set, a hook."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")  # of PyTorch
    return any(vars(model).get(name) for name in ("call", *hooks))


def _ordered(calls: Sequence[Call], outputs: Iterable[int]) -> list[Call]:
    """Each call after those it needs, and as soon before the one that needs it as can be.

    The calls of one layer stay in their order: they may change its variables one after the other.
    """
    makers = {tensor: call for call in calls for tensor in call.outputs}
    last_of: dict[int, Call] = {}
    needed: dict[int, list[Call]] = {}
    for call in calls:
        earlier = last_of.get(id(call.operation))
        last_of[id(call.operation)] = call
        needed[id(call)] = [makers[tensor] for tensor in call.inputs if tensor in makers] + (
            [earlier] if earlier else []
        )
    done: dict[int, Call] = {}
    stack = [makers[tensor] for tensor in reversed(tuple(outputs)) if tensor in makers]
    while stack:
        call = stack[-1]
        waiting = next((other for other in needed[id(call)] if id(other) not in done), None)
        if waiting is None:
            done[id(stack.pop())] = call
        else:
            stack.append(waiting)
    return list(done.values())
