"""The forward pass of a Functional or Sequential model in segments, some of them recomputed in the backward pass.

A backend is given a function that runs one segment and the variables that its layers own. What a segment has besides
tensors travels along with them: masks, and the losses that layers add.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from fitroom.keras_model.private import all_layers, get_mask, override_attribute, seed_generators, set_mask
from fitroom.remat.graph import Call, LayerGraph, functional_of
from fitroom.remat.segmentation import Segment, fill_gaps

Run = Callable[[Sequence[Any]], list[Any]]
"""Runs a segment's layers on its input tensors, and returns its output tensors: masks and the losses that layers add
are among them."""


@dataclass(frozen=True, kw_only=True)
class SegmentVariables:
    """The variables that a segment's layers own, layers within layers included, each once and in a fixed order."""

    trainable: tuple[Any, ...]
    """Those that get gradients."""

    non_trainable: tuple[Any, ...]
    """Frozen weights, and statistics such as BatchNormalization's, which a run may change."""

    seeds: tuple[Any, ...]
    """The states of random generators, which a run may change."""

    layers: tuple[Any, ...] = ()
    """The layers themselves, those within layers included."""

    @classmethod
    def of(cls, operations: Iterable[Any]) -> "SegmentVariables":
        """The variables of some layers; operations that are no layers own none."""
        layers = [each for each in operations if all_layers(each)]
        trainable = _each_once(variable for layer in layers for variable in layer.trainable_variables)
        seeds = _each_once(
            generator.state for layer in layers for within in all_layers(layer) for generator in seed_generators(within)
        )
        others = _each_once(
            variable for layer in layers for variable in (*layer.non_trainable_variables, *layer.metrics_variables)
        )
        non_trainable = [variable for key, variable in others.items() if key not in seeds and key not in trainable]
        return cls(
            trainable=tuple(trainable.values()),
            non_trainable=tuple(non_trainable),
            seeds=tuple(seeds.values()),
            layers=tuple(within for layer in layers for within in all_layers(layer)),
        )


RecomputeFunction = Callable[[Run, Sequence[Any], SegmentVariables], list[Any]]
"""A backend's `recompute_segment(run, inputs, variables)`: the outputs of `run(inputs)`, of which only these and the
inputs are kept for the backward pass; the rest is recomputed there.

What a run changes in `variables.non_trainable` and `variables.seeds` changes once, by the first run. The second sees
the values that the first saw, so that dropout draws the same mask, and what it would change is discarded."""


def _each_once(variables: Iterable[Any]) -> dict[int, Any]:
    return {id(variable): variable for variable in variables}


OperationFunction = Callable[[Any], Callable[..., Any]]
"""Gives an operation the arguments that Keras hands from layer to layer, such as `training`."""


class InnerForm(Protocol):
    """What direct calls may hand to one another in place of a tensor."""

    def as_tensor(self) -> Any:
        """The tensor as Keras has it."""


DirectCall = Callable[[list[Any], Any, Any], Any]
"""Carries out one call of a layer, `direct(inputs, training, forward)`, past what Keras does around it. NotImplemented
where Keras has to. Inputs and output are tensors, or the backend's `inner_form` of them."""


class ForwardPass(Protocol):
    """What the direct calls of one run share."""

    def settle(self) -> None:
        """Change the variables as far as the calls up to now would have: Keras is going to look at them."""


class DirectCalls(Protocol):
    """The short ways through one segment."""

    @property
    def ways(self) -> Sequence[DirectCall | None]:
        """For each call the short way; None where it needs Keras."""

    @property
    def inner_form(self) -> type[InnerForm]:
        """What its short ways may hand to one another."""

    def begin(self) -> AbstractContextManager[ForwardPass]:
        """Begin a run of the segment; it is settled at the end of the block."""


FindDirect = Callable[[Sequence[Call]], DirectCalls]
"""Finds the short ways through the calls of a segment."""


def _as_it_is(operation: Any) -> Any:
    """The operation itself: from 3.16 on Keras keeps those arguments elsewhere."""
    return operation


class SegmentedCall:
    """The forward pass of a Functional or Sequential model, some segments of it recomputed.

    With `direct`, which finds short ways to carry out calls, a tensor is let go after its last use; Keras keeps all of
    them until the end of the forward pass.

    >>> segmented = SegmentedCall(model, graph, segments, recompute)  # doctest: +SKIP
    >>> with segmented.installed():  # doctest: +SKIP
    ...     model.train_on_batch(x, y)
    """

    def __init__(
        self,
        model: Any,
        graph: LayerGraph,
        segments: Sequence[Segment],
        recompute: RecomputeFunction,
        direct: FindDirect | None = None,
    ) -> None:
        self._model, self._functional, self._graph = model, functional_of(model), graph
        self._recompute, self._always = recompute, direct is not None
        self._segments = [_RunSegment(graph, segment, direct) for segment in fill_gaps(segments, len(graph.calls))]
        self._to_recompute = frozenset(segments)

    @contextmanager
    def install(self) -> Iterator[None]:
        """Have the model run in segments whenever it is called in training, for the time of the block.

        With short ways it runs so whenever it is called; outside of training nothing is recomputed.
        """
        plain, plain_run = self._model.call, self._functional._run_through_graph
        of_call = threading.local()  # another thread may use the model meanwhile, outside of training

        def call(inputs: Any, training: Any = None, **given: Any) -> Any:
            around = getattr(of_call, "training", None)
            of_call.training = training
            try:
                return plain(inputs, training=training, **given)
            finally:
                of_call.training = around

        def run(inputs: Any, *functions: Any, **named: Any) -> Any:
            training = getattr(of_call, "training", None)
            # Without a word on it, each call in the graph is made as it was written down: with `training=True`, say.
            if training is None or not (training or self._always):
                return plain_run(inputs, *functions, **named)
            return self._run_through_graph(inputs, *functions, **named, training=training)

        in_segments = override_attribute(self._functional, "_run_through_graph", run)
        with in_segments, override_attribute(self._model, "call", call):
            yield

    def _run_through_graph(
        self, inputs: Any, operation_fn: OperationFunction = _as_it_is, *, training: Any = None
    ) -> Any:
        """In place of Keras's method of that name, which runs call after call and keeps all tensors."""
        import keras

        values = _Values(self._graph.places)
        values.held.update(zip(self._graph.inputs, keras.tree.flatten(inputs), strict=True))
        for segment in self._segments:
            if training and segment.segment in self._to_recompute:
                segment.run_recomputed(values, operation_fn, self._recompute)
            else:
                segment.run(values, operation_fn, training)
            for place in segment.last_used:
                values.held.pop(place, None)
        outputs = [values.held[place] for place in self._graph.outputs]
        return keras.tree.pack_sequence_as(self._functional.output, outputs)


class _Values:
    """The tensors so far, by their place in the graph or by the id of the symbolic tensor they stand for."""

    def __init__(self, places: dict[int, int]) -> None:
        self.places = places
        self.held: dict[int, Any] = {}

    def __getitem__(self, symbolic: int) -> Any:
        return self.held[self.places[symbolic]]

    def get(self, symbolic: int, default: Any = None) -> Any:
        return self.held.get(self.places[symbolic], default)


class _RunSegment:
    """Runs the calls of one segment."""

    def __init__(self, graph: LayerGraph, segment: Segment, direct: FindDirect | None) -> None:
        self.segment, self._places = segment, graph.places
        self._calls = graph.calls[segment.start : segment.stop]
        self._entering = graph.entering(segment.start, segment.stop)
        self._leaving = graph.leaving(segment.start, segment.stop)
        self.last_used = [
            place
            for place in dict.fromkeys((*self._entering, *(made for call in self._calls for made in call.outputs)))
            if max(graph.used_by.get(place, (-1,))) < segment.stop
        ]
        self._layers = [call.operation for call in self._calls if not call.enters]
        self._variables: SegmentVariables | None = None
        self._direct = None if direct is None else direct(self._calls)
        self._spent = [
            () if direct is None else _spent_by(graph, number) for number in range(segment.start, segment.stop)
        ]

    def run(self, values: _Values, operation_fn: OperationFunction, training: Any) -> None:
        """Run call after call, as Keras does, or by a short way."""
        if self._direct is None:
            for call in self._calls:
                values.held.update(zip(call.outputs, _outputs_of(call, values, operation_fn), strict=True))
        else:
            self._run_directly(self._direct, values, operation_fn, training)

    def _run_directly(
        self, direct: DirectCalls, values: _Values, operation_fn: OperationFunction, training: Any
    ) -> None:
        held, inner_form = values.held, direct.inner_form
        with direct.begin() as forward:
            for call, way, spent in zip(self._calls, direct.ways, self._spent, strict=True):
                output: Any = NotImplemented
                if way is not None:
                    output = way([held[place] for place in call.inputs], training, forward)
                if output is NotImplemented:
                    forward.settle()
                    for place in call.inputs:
                        if isinstance(held[place], inner_form):
                            held[place] = held[place].as_tensor()
                    held.update(zip(call.outputs, _outputs_of(call, values, operation_fn), strict=True))
                else:
                    held[call.outputs[0]] = output
                output = None
                for place in spent:
                    held.pop(place, None)
        for place, value in held.items():
            if isinstance(value, inner_form):
                held[place] = value.as_tensor()

    def run_recomputed(self, values: _Values, operation_fn: OperationFunction, recompute: RecomputeFunction) -> None:
        """Run the segment as a whole that the backward pass recomputes."""
        if self._variables is None:
            self._variables = SegmentVariables.of(self._layers)
        entering = [place for place in self._entering if values.held[place] is not None]  # inputs may be optional
        inputs = [values.held[place] for place in entering]
        masked = [place for place, value in zip(entering, inputs, strict=True) if get_mask(value) is not None]
        masks = [get_mask(values.held[place]) for place in masked]
        told: dict[str, Any] = {}

        def run(tensors: Sequence[Any]) -> list[Any]:
            inner = _Values(self._places)
            inner.held.update(dict.fromkeys(self._entering))
            inner.held.update(zip(entering, tensors, strict=False))
            for place, mask in zip(masked, tensors[len(entering) :], strict=True):
                set_mask(inner.held[place], mask)
            with collect_added_losses(self._layers) as losses:
                self.run(inner, operation_fn, True)
            leaving = [inner.held[place] for place in self._leaving]
            masked_outputs = [number for number, value in enumerate(leaving) if get_mask(value) is not None]
            told.update(masked=masked_outputs, owners=[owner for owner, _ in losses])
            return [*leaving, *(get_mask(leaving[number]) for number in masked_outputs), *(loss for _, loss in losses)]

        outputs = recompute(run, [*inputs, *masks], self._variables)
        num_leaving, num_masks = len(self._leaving), len(told["masked"])
        for number, mask in zip(told["masked"], outputs[num_leaving:], strict=False):
            set_mask(outputs[number], mask)
        for owner, loss in zip(told["owners"], outputs[num_leaving + num_masks :], strict=True):
            owner.add_loss(loss)
        values.held.update(zip(self._leaving, outputs, strict=False))


def _spent_by(graph: LayerGraph, number: int) -> tuple[int, ...]:
    """The tensors that nothing uses after this call."""
    call = graph.calls[number]
    return tuple(place for place in (*call.inputs, *call.outputs) if max(graph.used_by.get(place, (-1,))) <= number)


def _outputs_of(call: Call, values: _Values, operation_fn: OperationFunction) -> list[Any]:
    import keras

    args, kwargs = call.arguments.fill_in(values)
    with ExitStack() as scopes:
        for model in call.within:
            scopes.enter_context(keras.name_scope(model.name))
        if call.enters:
            return list(call.operation._standardize_inputs(args[0]))
        return list(keras.tree.flatten(operation_fn(call.operation)(*args, **kwargs)))


@contextmanager
def collect_added_losses(operations: Sequence[Any]) -> Iterator[list[tuple[Any, Any]]]:
    """Collect the losses that layers add in the block, each with its layer, in place of adding them."""
    import keras

    found: list[tuple[Any, Any]] = []
    with ExitStack() as stack:
        for operation in operations:
            for layer in all_layers(operation):

                def add(loss: Any, layer: Any = layer) -> None:
                    found.extend((layer, each) for each in keras.tree.flatten(loss))

                stack.enter_context(override_attribute(layer, "add_loss", add))
        yield found
