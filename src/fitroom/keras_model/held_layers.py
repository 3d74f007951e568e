"""A model whose `call` is Python code of its own: each layer it holds that is made of layers is a segment."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from fitroom.errors import ModelError
from fitroom.keras_model.segment import Recomputed, SegmentVariables
from fitroom.keras_model.segmented_call import SegmentedCall, lent, losses_added
from fitroom.remat.chooser import SegmentChooser
from fitroom.remat.graph import functional_of


class HeldLayers:
    """The forward pass of a subclassed model, the blocks that it holds through `recomputed`.

    A Functional or Sequential model among them is cut into blocks itself.
    """

    def __init__(self, model: Any, recomputed: Recomputed) -> None:
        blocks = [layer for layer in model.layers if layer._flatten_layers(include_self=False)]
        if not blocks:
            raise ModelError(
                f"Nothing of {model.name!r} can be computed again as a block: its `call` is Python code of its own, "
                "and no layer that it holds is made of others.",
                hint="put blocks into layers of their own, or build the model with the Functional API",
            )
        self._calls = [
            _segmented(block, recomputed) if functional_of(block) else _HeldLayer(block, recomputed) for block in blocks
        ]

    @contextmanager
    def installed(self) -> Iterator[None]:
        """For the time of the block the model runs so; after it, it is as it was."""
        with ExitStack() as stack:
            for call in self._calls:
                stack.enter_context(call.installed())
            yield


class _HeldLayer:
    """One layer, whose every call is a segment."""

    def __init__(self, layer: Any, recomputed: Recomputed) -> None:
        self._layer, self._recomputed = layer, recomputed

    @contextmanager
    def installed(self) -> Iterator[None]:
        with lent(self._layer, "call", self._call):
            yield

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        import keras
        from keras.src.backend import AutocastScope  # no public name

        layer, given = self._layer, keras.tree.flatten((args, kwargs))
        tensors = [place for place, value in enumerate(given) if keras.ops.is_tensor(value)]
        told: dict[str, Any] = {}

        def run(inputs: Sequence[Any]) -> list[Any]:
            filled = list(given)
            for place, value in zip(tensors, inputs, strict=True):
                filled[place] = value
            its_args, its_kwargs = keras.tree.pack_sequence_as((args, kwargs), filled)
            # The precision that Keras opens around the call is closed when it runs again.
            with AutocastScope(layer.compute_dtype if layer.autocast else None), losses_added([layer]) as losses:
                outputs = type(layer).call(layer, *its_args, **its_kwargs)
            told.update(outputs=outputs, owners=[owner for owner, _ in losses])
            return [*keras.tree.flatten(outputs), *(loss for _, loss in losses)]

        found = self._recomputed(run, [given[place] for place in tensors], SegmentVariables.of([layer]))
        for owner, loss in zip(told["owners"], found[len(found) - len(told["owners"]) :], strict=True):
            owner.add_loss(loss)
        return keras.tree.pack_sequence_as(told["outputs"], found[: len(found) - len(told["owners"])])


def _segmented(block: Any, recomputed: Recomputed) -> SegmentedCall:
    chooser = SegmentChooser.of_model(block)
    return SegmentedCall(block, chooser.graph, chooser.choose("blocks").segments, recomputed)
