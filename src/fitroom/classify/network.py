"""A network that tells the classes apart: a ready-made one with a new head, or the user's own."""

from dataclasses import dataclass, replace
from typing import Any

from fitroom.classify.normalisation import normalisation_of
from fitroom.classify.options import IMAGENET, NO_WEIGHTS, OWN_WEIGHTS
from fitroom.classify.weights import imagenet_or_refuse, read_weights
from fitroom.errors import InputError, ModelError
from fitroom.keras_model.loading.application import application_name, build_features
from fitroom.keras_model.loading.function import takes_image_size
from fitroom.keras_model.loading.source import ModelSource, kind_of, load_model
from fitroom.keras_model.twin import without_values

_DROPOUT = 0.2
_NORMALISING = ("Rescaling", "Normalization")


@dataclass(frozen=True, kw_only=True)
class Network:
    """A model that takes pictures of 0 to 255 and ends in one number a class; not compiled."""

    model: Any
    weights: str
    """Where its values are from: "imagenet", "none", a file, or "its own"."""

    has_learnt: bool
    """Whether the values are of a training. What a function builds is taken for new."""

    notes: tuple[str, ...] = ()
    """What the user should know, in whole sentences."""

    @property
    def gives_probabilities(self) -> bool:
        """Whether it ends in a softmax, or a sigmoid for each class; what it gives are logits where not."""
        last = self.model.layers[-1]
        activation = getattr(getattr(last, "activation", None), "__name__", "")
        return activation in ("softmax", "sigmoid") or type(last).__name__ == "Softmax"

    @property
    def body(self) -> list[Any]:
        """All layers but the head, which is the last that has weights."""
        with_weights = [layer for layer in self.model.layers if layer.weights]
        return [layer for layer in self.model.layers if layer not in with_weights[-1:]]


def picture_size(source: ModelSource) -> int:
    """Height and width of the pictures: as asked for, or as the model has them."""
    if source.image_size:
        return source.image_size
    shape = _shape(load_model(source).input_shape)
    if len(shape) != 4 or shape[1] is None or shape[1] != shape[2]:
        raise InputError(
            f"{source.text} leaves the size of its pictures open. Its input: {shape}.",
            hint="say it with --image-size, such as --image-size 224",
        )
    return int(shape[1])


def check_sizes(source: ModelSource) -> None:
    """Refuse a model that cannot be built for smaller pictures."""
    kind = kind_of(source.text)
    if kind == "file" or (kind == "function" and not takes_image_size(source.text)):
        raise InputError(
            f"{source.text} has one size of pictures, so smaller ones cannot be had.",
            hint="leave out --image-size auto and --allow image-size; or give a name of keras.applications, or a "
            "function that takes `image_size`",
        )


def build_network(source: ModelSource, *, num_classes: int, weights: str | None, values: bool = True) -> Network:
    """The network for pictures of `source.image_size`; `weights` as on the command line.

    Without `values` it is for planning: quicker, and its weights are nothing in particular.
    """
    if kind_of(source.text) != "name":
        return _users_own(source, num_classes, weights, values=values)
    if values:
        return _ready_made(source, num_classes, weights or IMAGENET)
    with without_values():
        return replace(_ready_made(source, num_classes, NO_WEIGHTS), has_learnt=weights != NO_WEIGHTS)


def _ready_made(source: ModelSource, num_classes: int, weights: str) -> Network:
    """Pooling, dropout and one dense layer in place of the classifier it was made with."""
    import keras

    name = application_name(source.text)
    pictures = keras.Input((source.image_size, source.image_size, 3), name="pictures")
    normalised = normalisation_of(name)(pictures)
    if weights == IMAGENET:
        features = imagenet_or_refuse(name, lambda: build_features(source, normalised, weights="imagenet"))
    else:
        features = build_features(source, normalised, weights=None)
    dropped = keras.layers.Dropout(_DROPOUT, name="dropout")(features.output)
    # In float32 whatever the model's precision: probabilities near one have no room in 16 bits.
    classes = keras.layers.Dense(num_classes, activation="softmax", dtype="float32", name="classes")(dropped)
    model = keras.Model(pictures, classes, name=features.name)
    notes: tuple[str, ...] = ()
    if weights not in (IMAGENET, NO_WEIGHTS):
        notes = read_weights(model, features, weights)
    return Network(model=model, weights=weights, has_learnt=weights != NO_WEIGHTS, notes=notes)


def _users_own(source: ModelSource, num_classes: int, weights: str | None, *, values: bool) -> Network:
    if weights in (IMAGENET, NO_WEIGHTS):
        raise InputError(
            f"--weights {weights} is for ready-made models by name. Received: --model {source.text}.",
            hint="leave it out: the model has values of its own; or give a file of weights",
        )
    is_function = kind_of(source.text) == "function"
    offers = {"classes": num_classes, "image_size": source.image_size or 0} if is_function else {}
    model = load_model(replace(source, offers=offers, values=values))
    _check_input(model, source)
    notes: list[str] = []
    if _shape(model.output_shape) != (None, num_classes):
        if is_function:
            raise _other_outputs(source.text, model, num_classes)
        before = _shape(model.output_shape)[-1]
        model = _with_new_head(source.text, model, num_classes)
        notes.append(f"The model of {source.text} tells {before} classes apart: it has a new last layer for these.")
    if not any(type(layer).__name__ in _NORMALISING for layer in model._flatten_layers()):
        notes.append(f"{source.text} has no Rescaling or Normalization layer: it is given pictures of 0 to 255.")
    _set_precision(model, None if is_function else source.precision)
    if weights is not None and values:
        notes += read_weights(model, model, weights)
    has_learnt = not is_function or weights is not None
    return Network(model=model, weights=weights or OWN_WEIGHTS, has_learnt=has_learnt, notes=tuple(notes))


def _check_input(model: Any, source: ModelSource) -> None:
    size = source.image_size
    shape = _shape(model.input_shape)
    if len(shape) != 4 or any(
        has not in (None, wanted) for has, wanted in zip(shape[1:], (size, size, 3), strict=True)
    ):
        raise InputError(
            f"{source.text} takes {shape}. Expected: colour pictures of {size} x {size}, (None, {size}, {size}, 3).",
            hint="another --image-size, or a model for colour pictures with the channels last",
        )


def _with_new_head(text: str, model: Any, num_classes: int) -> Any:
    """The same up to its last dense layer, and one for these classes in its place."""
    import keras

    *_, last = model.layers
    if not isinstance(last, keras.layers.Dense) or len(_shape(model.output_shape)) != 2:
        raise _other_outputs(text, model, num_classes)
    head = keras.layers.Dense(num_classes, activation=last.activation, dtype=last.dtype_policy, name="classes")
    return keras.Model(model.inputs, head(last.input), name=model.name)


def _set_precision(model: Any, policy: str | None) -> None:
    """Have the layers of a file compute in a policy; and the last of any model in float32, for its probabilities."""
    import keras

    for layer in model._flatten_layers():
        if policy and layer.dtype_policy.name == "float32":
            layer.dtype_policy = keras.dtype_policies.get(policy)
    if model.layers[-1].dtype_policy.name.startswith("mixed"):
        model.layers[-1].dtype_policy = keras.dtype_policies.get("float32")


def _other_outputs(text: str, model: Any, num_classes: int) -> ModelError:
    return ModelError(
        f"{text} ends in outputs of {_shape(model.output_shape)}. "
        f"Expected: {num_classes}, one a class, (None, {num_classes}).",
        hint=f"end it in Dense({num_classes}, activation='softmax'); a function may take `classes` and is told it",
    )


def _shape(shape: Any) -> tuple[Any, ...]:
    return tuple(shape) if isinstance(shape, list | tuple) else (shape,)
