"""The forward pass of a Functional or Sequential model, stretches of it through a backend's `recomputed`.

What a stretch has besides tensors travels along with them: masks, and the losses that layers add.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

from fitroom.keras_model.segment import Recomputed, SegmentVariables
from fitroom.remat.graph import Call, LayerGraph, functional_of
from fitroom.remat.segmentation import Segment, fill_gaps

OperationFunction = Callable[[Any], Callable[..., Any]]
"""Gives an operation the arguments that Keras hands from layer to layer, such as `training`."""


class SegmentedCall:
    """The forward pass of a Functional or Sequential model, some stretches of it through `recomputed`.

    >>> segmented = SegmentedCall(model, graph, segments, recomputed)  # doctest: +SKIP
    >>> with segmented.installed():  # doctest: +SKIP
    ...     model.train_on_batch(x, y)
    """

    def __init__(self, model: Any, graph: LayerGraph, segments: Sequence[Segment], recomputed: Recomputed) -> None:
        self._model, self._functional, self._graph = model, functional_of(model), graph
        self._recomputed = recomputed
        self._stretches = [_Stretch(graph, segment) for segment in fill_gaps(segments, len(graph.calls))]
        self._to_recompute = frozenset(segments)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """For the time of the block the model runs so whenever it is called in training; after it, it is as it was."""
        plain = type(self._model).call.__get__(self._model)

        def call(inputs: Any, training: Any = None, mask: Any = None, **context: Any) -> Any:
            in_segments = lent(self._functional, "_run_through_graph", self._run_through_graph)
            with in_segments if training else nullcontext():
                return plain(inputs, training=training, mask=mask, **context)

        with lent(self._model, "call", call):
            yield

    def _run_through_graph(self, inputs: Any, operation_fn: OperationFunction) -> Any:
        """In place of Keras's own, which runs call after call and keeps all tensors."""
        import keras

        values = _Values(self._graph.places)
        values.held.update(zip(self._graph.inputs, keras.tree.flatten(inputs), strict=True))
        for stretch in self._stretches:
            if stretch.segment in self._to_recompute:
                stretch.run_recomputed(values, operation_fn, self._recomputed)
            else:
                stretch.run(values, operation_fn)
            for place in stretch.last_used:
                values.held.pop(place, None)
        outputs = [values.held[place] for place in self._graph.outputs]
        return keras.tree.pack_sequence_as(self._functional.output, outputs)


class _Values:
    """The tensors there are, found by their place in the graph or by the id of the symbolic tensor they stand for."""

    def __init__(self, places: dict[int, int]) -> None:
        self.places = places
        self.held: dict[int, Any] = {}

    def __getitem__(self, symbolic: int) -> Any:
        return self.held[self.places[symbolic]]

    def get(self, symbolic: int, default: Any = None) -> Any:
        return self.held.get(self.places[symbolic], default)


class _Stretch:
    """Consecutive calls of a graph."""

    def __init__(self, graph: LayerGraph, segment: Segment) -> None:
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

    def run(self, values: _Values, operation_fn: OperationFunction) -> None:
        """Call after call, as Keras does."""
        for call in self._calls:
            values.held.update(zip(call.outputs, _outputs_of(call, values, operation_fn), strict=True))

    def run_recomputed(self, values: _Values, operation_fn: OperationFunction, recomputed: Recomputed) -> None:
        """As a whole that is run again in the backward pass."""
        if self._variables is None:
            self._variables = SegmentVariables.of(self._layers)
        entering = [place for place in self._entering if values.held[place] is not None]  # inputs may be optional
        inputs = [values.held[place] for place in entering]
        masked = [place for place, value in zip(entering, inputs, strict=True) if mask_of(value) is not None]
        masks = [mask_of(values.held[place]) for place in masked]
        told: dict[str, Any] = {}

        def run(tensors: Sequence[Any]) -> list[Any]:
            inner = _Values(self._places)
            inner.held.update(dict.fromkeys(self._entering))
            inner.held.update(zip(entering, tensors, strict=False))
            for place, mask in zip(masked, tensors[len(entering) :], strict=True):
                set_mask(inner.held[place], mask)
            with losses_added(self._layers) as losses:
                self.run(inner, operation_fn)
            leaving = [inner.held[place] for place in self._leaving]
            masked_outputs = [number for number, value in enumerate(leaving) if mask_of(value) is not None]
            told.update(masked=masked_outputs, owners=[owner for owner, _ in losses])
            return [*leaving, *(mask_of(leaving[number]) for number in masked_outputs), *(loss for _, loss in losses)]

        outputs = recomputed(run, [*inputs, *masks], self._variables)
        num_leaving, num_masks = len(self._leaving), len(told["masked"])
        for number, mask in zip(told["masked"], outputs[num_leaving:], strict=False):
            set_mask(outputs[number], mask)
        for owner, loss in zip(told["owners"], outputs[num_leaving + num_masks :], strict=True):
            owner.add_loss(loss)
        values.held.update(zip(self._leaving, outputs, strict=False))


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
def losses_added(operations: Sequence[Any]) -> Iterator[list[tuple[Any, Any]]]:
    """The losses that layers add in the block, each with its layer, held back from the layers."""
    import keras

    found: list[tuple[Any, Any]] = []
    with ExitStack() as stack:
        for operation in operations:
            for layer in operation._flatten_layers() if hasattr(operation, "_flatten_layers") else ():

                def add(loss: Any, layer: Any = layer) -> None:
                    found.extend((layer, each) for each in keras.tree.flatten(loss))

                stack.enter_context(lent(layer, "add_loss", add))
        yield found


@contextmanager
def lent(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute of the instance for the time of the block; past Keras, which would track what is set."""
    own = vars(owner)
    before = {name: own[name]} if name in own else {}
    own[name] = value
    try:
        yield
    finally:
        del own[name]
        own.update(before)


def mask_of(tensor: Any) -> Any:
    """The mask that Keras hung on a tensor, or None."""
    from keras.src.backend import get_keras_mask  # no public name

    return None if tensor is None else get_keras_mask(tensor)


def set_mask(tensor: Any, mask: Any) -> None:
    """Hang a mask on a tensor."""
    from keras.src.backend import set_keras_mask  # no public name

    set_keras_mask(tensor, mask)
