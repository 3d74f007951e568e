"""A model that recomputes segments of itself in the backward pass, for the time of a step.

The model stays the user's own: the same layers, variables, names, the same saved file. While a step runs, or is traced
and compiled, `call` on the instance is another one; afterwards it is as it was. In a model with a `call` of its own
each layer it holds that is made of layers is a segment.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from fitroom.errors import ModelError
from fitroom.keras_model.private import autocast_scope, inner_layers, override_attribute
from fitroom.keras_model.segmented_call import (
    FindDirect,
    RecomputeFunction,
    SegmentedCall,
    collect_added_losses,
)
from fitroom.keras_model.segmented_call import SegmentVariables as SegmentVariables
from fitroom.recipe import Remat
from fitroom.remat.chooser import SegmentChooser
from fitroom.remat.graph import functional_of, layer_graph
from fitroom.remat.shapes import num_bytes

Step = Callable[..., Any]


class Rematerialisation:
    """What `Recipe(remat=...)` asks for, carried out on one model with a backend's `recompute_segment`.

    >>> rematerialisation = Rematerialisation(model, "blocks", recompute_segment)  # doctest: +SKIP
    >>> with rematerialisation.during(num_samples=32):  # doctest: +SKIP
    ...     model.train_on_batch(x, y)
    """

    def __init__(
        self,
        model: Any,
        remat: str | Remat | None,
        recompute: RecomputeFunction,
        direct: FindDirect | None = None,
    ) -> None:
        self._model, self._recompute, self._direct = model, recompute, direct
        self.remat = None if remat == "none" else remat
        self._chooser: SegmentChooser | None = None
        self._calls: dict[int, SegmentedCall | HeldLayers] = {}

    def during(self, num_samples: int) -> AbstractContextManager[None]:
        """Have the model run in segments whenever it is called in training, for the time of the block.

        `num_samples` is the micro-batch: segments chosen for a budget depend on it.
        """
        if self.remat is None and (self._direct is None or functional_of(self._model) is None):
            return nullcontext()
        if num_samples not in self._calls:
            self._calls[num_samples] = self._call(num_samples)
        return self._calls[num_samples].install()

    def _call(self, num_samples: int) -> "SegmentedCall | HeldLayers":
        if self.remat == "blocks" and functional_of(self._model) is None:
            return HeldLayers(self._model, self._recompute)
        if self.remat is None:
            return SegmentedCall(self._model, layer_graph(self._model), (), self._recompute, self._direct)
        self._chooser = self._chooser or SegmentChooser.of_model(self._model)
        segmentation = self._chooser.choose(self.remat or "none", num_samples, resident_bytes(self._model, num_samples))
        return SegmentedCall(self._model, self._chooser.graph, segmentation.segments, self._recompute, self._direct)

    def of_step(self, step: Step, num_samples: int) -> Step:
        """A step that does what `step` does, with the model running in segments.

        It is another function, so that programs a framework compiled for `step` are not taken for it.
        """
        if self.remat is None and self._direct is None:
            return step

        def in_segments(*arguments: Any) -> Any:
            with self.during(num_samples):
                return step(*arguments)

        return in_segments


def has_blocks(model: Any) -> bool:
    """Whether `remat="blocks"` recomputes anything of a built model."""
    if functional_of(model) is None:
        return any(inner_layers(layer) for layer in model.layers)
    return bool(SegmentChooser.of_model(model).choose("blocks").segments)


def resident_bytes(model: Any, num_samples: int) -> int:
    """Bytes in use through a whole training step: variables, gradients, the optimizer's variables, the batch."""
    held = [*model.variables, *model.metrics_variables, *model.trainable_variables]
    # Adam keeps two numbers for each weight; it is what a model that nobody compiled is taken to be trained with.
    held += model.optimizer.variables if model.compiled and model.optimizer else 2 * model.trainable_variables
    tensors = getattr(model, "inputs", None) or ()  # a subclassed model may know none
    inputs = sum(num_bytes((num_samples, *tensor.shape[1:]), tensor.dtype) for tensor in tensors)
    return inputs + sum(num_bytes(variable.shape, variable.dtype) for variable in held)


class HeldLayers:
    """The forward pass of a subclassed model, the blocks that it holds recomputed.

    A Functional or Sequential model among them is divided into segments itself.
    """

    def __init__(self, model: Any, recompute: RecomputeFunction) -> None:
        blocks = [layer for layer in model.layers if inner_layers(layer)]
        if not blocks:
            raise ModelError(
                f"Nothing of {model.name!r} can be recomputed as a block: its `call` is Python code of its own, "
                "and no layer that it holds is made of others.",
                hint="put blocks into layers of their own, or build the model with the Functional API",
            )
        self._calls = [
            _segment_model(block, recompute) if functional_of(block) else _HeldLayer(block, recompute)
            for block in blocks
        ]

    @contextmanager
    def install(self) -> Iterator[None]:
        """Have the model run in segments for the time of the block."""
        with ExitStack() as stack:
            for call in self._calls:
                stack.enter_context(call.install())
            yield


class _HeldLayer:
    """One layer, whose every call is a segment."""

    def __init__(self, layer: Any, recompute: RecomputeFunction) -> None:
        self._layer, self._recompute = layer, recompute

    @contextmanager
    def install(self) -> Iterator[None]:
        with override_attribute(self._layer, "call", self._call):
            yield

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        import keras

        layer, given = self._layer, keras.tree.flatten((args, kwargs))
        tensors = [place for place, value in enumerate(given) if keras.ops.is_tensor(value)]
        told: dict[str, Any] = {}

        def run(inputs: Sequence[Any]) -> list[Any]:
            filled = list(given)
            for place, value in zip(tensors, inputs, strict=True):
                filled[place] = value
            its_args, its_kwargs = keras.tree.pack_sequence_as((args, kwargs), filled)
            # The scope that Keras opens around the call is closed when the segment is recomputed.
            with autocast_scope(layer), collect_added_losses([layer]) as losses:
                outputs = type(layer).call(layer, *its_args, **its_kwargs)
            told.update(outputs=outputs, owners=[owner for owner, _ in losses])
            return [*keras.tree.flatten(outputs), *(loss for _, loss in losses)]

        found = self._recompute(run, [given[place] for place in tensors], SegmentVariables.of([layer]))
        for owner, loss in zip(told["owners"], found[len(found) - len(told["owners"]) :], strict=True):
            owner.add_loss(loss)
        return keras.tree.pack_sequence_as(told["outputs"], found[: len(found) - len(told["owners"])])


def _segment_model(block: Any, recompute: RecomputeFunction) -> SegmentedCall:
    chooser = SegmentChooser.of_model(block)
    return SegmentedCall(block, chooser.graph, chooser.choose("blocks").segments, recompute)
