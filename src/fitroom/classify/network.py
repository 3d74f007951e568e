"""The network to train: a model of keras.applications with a new head, or the user's own; and its initial weights."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fitroom.classify.normalisation import find_normalisation
from fitroom.classify.options import IMAGENET, NO_WEIGHTS, OWN_WEIGHTS
from fitroom.errors import FitroomError, InputError, ModelError
from fitroom.keras_model.loading.application import application_name, build_features
from fitroom.keras_model.loading.function import takes_image_size
from fitroom.keras_model.loading.source import ModelSource, kind_of, load_model
from fitroom.keras_model.twin import without_values

_DROPOUT = 0.2
_NORMALISING = ("Rescaling", "Normalization")


@dataclass(frozen=True, kw_only=True)
class Network:
    """A model that takes images of 0 to 255 and has one output per class; not compiled."""

    model: Any
    weights: str
    """Where its initial weights are from: "imagenet", "none", a file, or "its own"."""

    is_pretrained: bool
    """Whether the weights come from a training. Those of a model that a function builds are taken for new."""

    notes: tuple[str, ...] = ()
    """Notes for the user, in whole sentences."""

    @property
    def gives_probabilities(self) -> bool:
        """Whether it ends in a softmax or a sigmoid; if not, its outputs are taken for logits."""
        last = self.model.layers[-1]
        activation = getattr(getattr(last, "activation", None), "__name__", "")
        return activation in ("softmax", "sigmoid") or type(last).__name__ == "Softmax"

    @property
    def body(self) -> list[Any]:
        """All layers but the head, which is the last one that has weights."""
        with_weights = [layer for layer in self.model.layers if layer.weights]
        return [layer for layer in self.model.layers if layer not in with_weights[-1:]]


def find_image_size(source: ModelSource) -> int:
    """Height and width of the images, as asked for, or else of the model's input."""
    if source.image_size:
        return source.image_size
    shape = _shape(load_model(source).input_shape)
    if len(shape) != 4 or shape[1] is None or shape[1] != shape[2]:
        raise InputError(
            f"{source.text} has no fixed image size. Its input: {shape}.",
            hint="give the size, such as --image-size 224",
        )
    return int(shape[1])


def check_sizes(source: ModelSource) -> None:
    """Raise InputError for a model that cannot be built for smaller images."""
    kind = kind_of(source.text)
    if kind == "file" or (kind == "function" and not takes_image_size(source.text)):
        raise InputError(
            f"{source.text} has a fixed image size, so it cannot be planned for smaller images.",
            hint="leave out --image-size auto and --allow image-size; or give a name of keras.applications, or a "
            "function that takes `image_size`",
        )


def build_network(source: ModelSource, *, num_classes: int, weights: str | None, values: bool = True) -> Network:
    """Build the network for images of `source.image_size`; `weights` as on the command line.

    Without `values` it is for planning only: its weights are not initialised, which is quicker.
    """
    if kind_of(source.text) != "name":
        return _build_own(source, num_classes, weights, values=values)
    if values:
        return _build_application(source, num_classes, weights or IMAGENET)
    with without_values():
        return replace(_build_application(source, num_classes, NO_WEIGHTS), is_pretrained=weights != NO_WEIGHTS)


def _build_application(source: ModelSource, num_classes: int, weights: str) -> Network:
    """A model of keras.applications with pooling, dropout and one dense layer in place of its classifier."""
    import keras

    name = application_name(source.text)
    images = keras.Input((source.image_size, source.image_size, 3), name="pictures")
    normalised = find_normalisation(name)(images)
    if weights == IMAGENET:
        features = build_with_imagenet(name, lambda: build_features(source, normalised, weights="imagenet"))
    else:
        features = build_features(source, normalised, weights=None)
    dropped = keras.layers.Dropout(_DROPOUT, name="dropout")(features.output)
    # In float32 whatever the model's precision: 16 bits cannot represent probabilities close to one.
    classes = keras.layers.Dense(num_classes, activation="softmax", dtype="float32", name="classes")(dropped)
    model = keras.Model(images, classes, name=features.name)
    notes: tuple[str, ...] = ()
    if weights not in (IMAGENET, NO_WEIGHTS):
        notes = read_weights(model, features, weights)
    return Network(model=model, weights=weights, is_pretrained=weights != NO_WEIGHTS, notes=notes)


def _build_own(source: ModelSource, num_classes: int, weights: str | None, *, values: bool) -> Network:
    if weights in (IMAGENET, NO_WEIGHTS):
        raise InputError(
            f"--weights {weights} is for models of keras.applications. Received: --model {source.text}.",
            hint="leave it out to start from the model's own weights, or give a file of weights",
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
        notes.append(f"The model of {source.text} has {before} classes: it gets a new last layer for these classes.")
    if not any(type(layer).__name__ in _NORMALISING for layer in model._flatten_layers()):
        notes.append(f"{source.text} has no Rescaling or Normalization layer: it gets pixel values from 0 to 255.")
    _set_precision(model, None if is_function else source.precision)
    if weights is not None and values:
        notes += read_weights(model, model, weights)
    is_pretrained = not is_function or weights is not None
    return Network(model=model, weights=weights or OWN_WEIGHTS, is_pretrained=is_pretrained, notes=tuple(notes))


def _check_input(model: Any, source: ModelSource) -> None:
    size = source.image_size
    shape = _shape(model.input_shape)
    if len(shape) != 4 or any(
        has not in (None, wanted) for has, wanted in zip(shape[1:], (size, size, 3), strict=True)
    ):
        raise InputError(
            f"{source.text} takes {shape}. Expected: colour images of {size} x {size}, (None, {size}, {size}, 3).",
            hint="give another --image-size, or a model for colour images with the channels last",
        )


def _with_new_head(text: str, model: Any, num_classes: int) -> Any:
    """The model with its last dense layer replaced by one for these classes."""
    import keras

    *_, last = model.layers
    if not isinstance(last, keras.layers.Dense) or len(_shape(model.output_shape)) != 2:
        raise _other_outputs(text, model, num_classes)
    head = keras.layers.Dense(num_classes, activation=last.activation, dtype=last.dtype_policy, name="classes")
    return keras.Model(model.inputs, head(last.input), name=model.name)


def _set_precision(model: Any, policy: str | None) -> None:
    """Set the dtype policy of the layers of a model file, and float32 for the last layer of any model."""
    import keras

    for layer in model._flatten_layers():
        if policy and layer.dtype_policy.name == "float32":
            layer.dtype_policy = keras.dtype_policies.get(policy)
    if model.layers[-1].dtype_policy.name.startswith("mixed"):
        model.layers[-1].dtype_policy = keras.dtype_policies.get("float32")


def _other_outputs(text: str, model: Any, num_classes: int) -> ModelError:
    return ModelError(
        f"{text} has outputs of {_shape(model.output_shape)}. Expected: one per class, (None, {num_classes}).",
        hint=f"end it in Dense({num_classes}, activation='softmax'); a function can take it as argument `classes`",
    )


def _shape(shape: Any) -> tuple[Any, ...]:
    return tuple(shape) if isinstance(shape, list | tuple) else (shape,)


def build_with_imagenet(name: str, build: Callable[[], Any]) -> Any:
    """Call `build`, which downloads ImageNet weights that Keras has not cached. Raises InputError where that fails."""
    try:
        return build()
    except FitroomError:
        raise
    except Exception as error:
        said = str(error).strip().splitlines()
        raise InputError(
            f"The ImageNet weights of {name} could not be downloaded: {said[0] if said else type(error).__name__}",
            hint="train from scratch with --weights none; or copy the file from a machine with a network connection, "
            "where Keras has it in ~/.keras/models, and give it as --weights FILE",
        ) from error


def check_weights_file(weights: str | None) -> None:
    """Raise InputError for a file of weights that does not exist, before anything slow begins."""
    if weights not in (None, IMAGENET, NO_WEIGHTS) and not Path(weights).is_file():
        raise InputError(
            f"There is no file of weights {weights!r}.",
            hint="--weights is imagenet, none, or a file such as a.weights.h5",
        )


def read_weights(model: Any, features: Any, file: str) -> tuple[str, ...]:
    """Load a file of weights, for the whole model or for all but its head. Returns notes for the user."""
    check_weights_file(file)
    path = Path(file)
    try:
        model.load_weights(path)
        return ()
    except Exception as error:
        of_whole = error
    try:
        features.load_weights(path)
        return (f"{path.name} has no weights for the last layer, which starts from scratch.",)
    except Exception:
        said = str(of_whole).strip().splitlines()
        raise InputError(
            f"The weights in {file} do not fit this model: {said[0][:300] if said else type(of_whole).__name__}",
            hint="they must be of the same --model, saved with `model.save_weights('a.weights.h5')` or Keras's own "
            "without the top; a .keras file is a model: give it as --model",
        ) from of_whole
