"""A model built again with some of its layers changed: the same graph, nested models and names."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from types import FunctionType
from typing import Any

from fitroom.errors import ModelError, UnknownNameError, message_of
from fitroom.keras_model.layers import layer_paths
from fitroom.keras_model.private import compile_config
from fitroom.keras_model.twin import compile_arguments, compile_like, keep_random_state, mark_uncompiled, without_values
from fitroom.remat.graph import functional_of

Shape = tuple[int | None, ...]
Weights = dict[int, list[Any]]


class Rebuilt:
    """A new model and, by the id of an old layer, the layer in its place."""

    def __init__(
        self,
        model: Any,
        make_layer: Callable[[Any], Any],
        entry_shapes: Callable[[Any], list[Shape] | None] = lambda model: None,
        *,
        values: bool = True,
    ) -> None:
        """Build the model again.

        Args:
            model: A Functional or Sequential model.
            make_layer: Returns the new layer for one that is no model; it has no weights yet.
            entry_shapes: The new shapes of the inputs of a nested model, or None where they stay.
            values: Whether the new weights have values; an estimate needs none.
        """
        self.old = model
        self.layers: dict[int, tuple[Any, Any]] = {}
        """Old and new layer."""

        self._make_layer = make_layer
        self._entry_shapes = entry_shapes
        with mark_uncompiled(model), keep_random_state(), nullcontext() if values else without_values():
            self.model = self._clone_model(model)

    def copy_weights(self, changed: Weights) -> None:
        """Give the new layers the weights of the old ones, or those in `changed`, by the id of the old layer."""
        for key, (old, new) in self.layers.items():
            if getattr(old, "weights", None):
                new.set_weights(changed[key] if key in changed else old.get_weights())
                if type(new).__name__ == "Normalization":
                    new.finalize_state()  # it computes with copies of its weights

    def compile_as_before(self) -> None:
        """Compile the new model as the old one was, with a new optimizer of the same settings."""
        if not self.old.compiled:
            return
        optimizer = compile_config(self.old)["optimizer"]
        if hasattr(optimizer, "get_config"):
            optimizer = type(optimizer).from_config(optimizer.get_config())
        compile_like(self.old, self.model, **compile_arguments(self.old) | {"optimizer": optimizer})

    def _clone_model(self, model: Any) -> Any:
        import keras

        shapes = self._entry_shapes(model) or [tuple(tensor.shape) for tensor in model.inputs]
        tensors = iter(
            [
                keras.Input(batch_shape=shape, dtype=tensor.dtype, name=tensor.name)
                for shape, tensor in zip(shapes, model.inputs, strict=True)
            ]
        )
        entry = keras.tree.map_structure(lambda _: next(tensors), functional_of(model).input)
        # A Sequential model calls its layers by itself.
        calls = {} if isinstance(model, keras.Sequential) else {"call_function": _call_layer}
        return keras.models.clone_model(model, input_tensors=entry, clone_function=self._clone_layer, **calls)

    def _clone_layer(self, layer: Any) -> Any:
        if id(layer) not in self.layers:
            is_model = bool(getattr(layer, "layers", None)) and hasattr(layer, "inputs")
            self.layers[id(layer)] = (layer, self._clone_model(layer) if is_model else self._make_layer(layer))
            if is_model:
                # The layers in it have their weights by themselves.
                self.layers[id(layer)] = (None, self.layers[id(layer)][1])
        return self.layers[id(layer)][1]


def _call_layer(layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a new layer as the old one was called; a GroupNormalization has no mask, as the layer before it had."""
    if type(layer).__name__ == "GroupNormalization":
        kwargs.pop("mask", None)
        kwargs.pop("training", None)
    return layer(*args, **kwargs)


def copy_layer(layer: Any, **changes: Any) -> Any:
    """A layer or operation like this one, without weights, with other entries in its config."""
    try:
        if type(layer).__name__ == "Lambda":
            # The function itself, which is in this process already: one that is stored lacks what it refers to.
            copy = type(layer).from_config(layer.get_config() | changes, safe_mode=False)
            copy.function = layer.function
            return copy
        config = layer.get_config() | changes
        if type(layer).__name__ == "Bidirectional":
            for part in ("layer", "backward_layer"):  # built by their configs, for the channels of the old one
                config[part].pop("build_config", None)
        return type(layer).from_config(config | _own_functions(layer, config))
    except Exception as error:
        raise ModelError(
            f"The layer {layer.name!r} ({type(layer).__name__}) could not be copied: {message_of(error).strip()}",
            hint="a layer of your own needs a `get_config`, and @keras.saving.register_keras_serializable() where it "
            "lies in a layer of Keras",
        ) from error


def _own_functions(layer: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Activations and other functions of the user's own, which the config holds by names that Keras may not know."""
    found = {name: getattr(layer, name, None) for name in config}
    return {name: value for name, value in found.items() if isinstance(value, FunctionType | partial)}


def choose_layers(model: Any, names: Iterable[str] | None) -> list[tuple[str, Any]]:
    """The layers of these names or paths, with their paths; all of them where None is given."""
    everything = list(layers_of(model))
    if names is None:
        return everything
    if isinstance(names, str):
        names = [names]
    found = []
    for name in names:
        named = [(path, layer) for path, layer in everything if name in (path, layer.name)]
        if not named:
            raise UnknownNameError("layer", str(name), [path for path, _ in everything])
        found += named
    return found


def layers_of(model: Any) -> Iterator[tuple[str, Any]]:
    """The layers of a model that are no models themselves, each once, with its path."""
    seen: set[int] = set()
    for path, layer in layer_paths(model):
        if id(layer) not in seen:
            seen.add(id(layer))
            yield path, layer
