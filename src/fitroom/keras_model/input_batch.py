"""The batch that a Keras model takes: shapes and dtypes of its inputs and of the targets its loss wants."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from fitroom.errors import InputError, ModelError
from fitroom.input_sizes import InputShape, describe_open, fill_in, known_sizes
from fitroom.keras_model.private import all_layers
from fitroom.recipe import Recipe

ASSUMED_BOXES = 32
"""An image, where a loss takes bounding boxes: how many there are shows in the data alone."""


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """Shape and dtype of one array of a batch."""

    shape: tuple[int, ...]
    dtype: str


def input_specs(model: Any, batch_size: int, recipe: Recipe) -> Any:
    """The inputs of a model for one micro-batch, as a structure of `TensorSpec`."""
    import keras

    inputs = _inputs(model)
    if recipe.image_size is not None and not any(len(tensor.shape) == 4 for tensor in keras.tree.flatten(inputs)):
        raise ModelError(
            f"The model {model.name!r} takes no images. Received: image size {recipe.image_size}.",
            hint="leave the image size out",
        )
    if recipe.input_dtype:
        try:
            keras.backend.standardize_dtype(recipe.input_dtype)
        except ValueError as error:
            raise InputError(
                f"Unknown dtype for the input. Received: {recipe.input_dtype!r}.", hint="uint8, float16, float32, int32"
            ) from error
    micro_batch = recipe.samples_at_once(batch_size)
    tensors = keras.tree.flatten(inputs)
    specs = [
        _fill(tensor, fill_in(tensor.shape, name=tensor.name, place=place, count=len(tensors)), micro_batch, recipe)
        for place, tensor in enumerate(tensors)
    ]
    return keras.tree.pack_sequence_as(inputs, specs)


def describe_open_dimensions(model: Any, input_shape: InputShape | None = None) -> tuple[str, ...]:
    """A sentence on the lengths that open dimensions of the model's inputs get; empty where none is open."""
    import keras

    with known_sizes(input_shape):
        note = describe_open([(tensor.name, tensor.shape) for tensor in keras.tree.flatten(_inputs(model))])
    return (note,) if note else ()


def build_inner_layers(model: Any, x: Any) -> None:
    """Build layers within layers too, which `model.build` leaves to the first call."""
    if not all(layer.built for layer in all_layers(model)):
        _compute_outputs(model, x)


def target_specs(model: Any, x: Any) -> tuple[Any, ...]:
    """Targets that the loss may take, the likeliest first: class numbers, arrays like the outputs, or none."""
    import keras

    outputs = _outputs(model, x)
    batch_size = keras.tree.flatten(x)[0].shape[0]
    shapes = [(batch_size, *tensor.shape[1:]) for tensor in keras.tree.flatten(outputs)]
    like_outputs = [TensorSpec(shape=shape, dtype="float32") for shape in shapes]
    class_numbers = [TensorSpec(shape=shape[:-1], dtype="int32") for shape in shapes]
    first = [
        numbers if "sparse" in loss else like
        for loss, numbers, like in zip(_losses(model, outputs), class_numbers, like_outputs, strict=True)
    ]
    candidates = [keras.tree.pack_sequence_as(outputs, specs) for specs in (first, like_outputs, class_numbers)]
    if type(model).compute_loss is not keras.Model.compute_loss:
        candidates.append(_bounding_boxes(batch_size))
    # Without a compiled loss the model's own step or layers make one of the inputs, as in a variational autoencoder.
    return tuple(candidates if model.loss is not None else [None, *candidates])


def _bounding_boxes(batch_size: int) -> dict[str, TensorSpec]:
    """What a detector learns from, in the form of `keras.utils.bounding_boxes`."""
    return {
        "boxes": TensorSpec(shape=(batch_size, ASSUMED_BOXES, 4), dtype="float32"),
        "labels": TensorSpec(shape=(batch_size, ASSUMED_BOXES), dtype="float32"),
    }


def _inputs(model: Any) -> Any:
    import keras

    if not model.built:
        raise ModelError(
            f"The model {model.name!r} is not built: its input shape is unknown.",
            hint="call it on a batch, or `model.build(shape)`: (None, height, width, channels) of images, "
            "(None, length) of tokens",
        )
    try:
        return model.input
    except (AttributeError, ValueError):
        shape = (model.get_build_config() or {}).get("input_shape")
        if not shape or not all(size is None or isinstance(size, int) for size in shape):
            raise ModelError(
                f"The input shape of the model {model.name!r} cannot be told.",
                hint="build it with `model.build(input_shape)`, or make it with a `keras.Input`",
            ) from None
        # The batch of the call that built it, if that is how it was built, is no part of the model.
        return keras.KerasTensor((None, *shape[1:]), dtype=keras.config.floatx(), name="input")


def _fill(tensor: Any, shape: tuple[int | None, ...], micro_batch: int, recipe: Recipe) -> TensorSpec:
    batch, *rest = shape
    if batch not in (None, micro_batch):
        raise ModelError(
            f"The model's input {tensor.name!r} has a fixed batch of {batch}. Received: {micro_batch}.",
            hint=f"ask for a batch of {batch}, or build the model without `batch_size` in its Input",
        )
    if recipe.image_size is not None and len(rest) == 3:
        if any(size not in (None, recipe.image_size) for size in rest[:2]):
            raise ModelError(
                f"The model takes images of {rest[0]} x {rest[1]}. Received: image size {recipe.image_size}.",
                hint="leave the image size out, or build the model for the size you want",
            )
        rest[:2] = [recipe.image_size] * 2
    if None in rest:
        flag = {4: "--image-size", 2: "--sequence-length", 3: "--sequence-length"}.get(len(shape))
        numbers = ", ".join("..." if size is None else str(size) for size in rest)
        raise ModelError(
            f"The model's input {tensor.name!r} leaves dimensions open, on which memory depends: {tuple(shape)}.",
            hint=f"say how large they get: {f'{flag}, or ' if flag else ''}input_shape=({numbers}) in Python",
        )
    sizes = [size for size in rest if size is not None]
    return TensorSpec(shape=(micro_batch, *sizes), dtype=recipe.input_dtype or str(tensor.dtype))


def _outputs(model: Any, x: Any) -> Any:
    """The model's outputs as symbolic tensors, all dimensions but the batch's known."""
    import keras

    try:
        outputs = model.output
    except (AttributeError, ValueError):
        outputs = None
    if outputs is not None and all(None not in tensor.shape[1:] for tensor in keras.tree.flatten(outputs)):
        return outputs
    return _compute_outputs(model, x)


def _compute_outputs(model: Any, x: Any) -> Any:
    import keras

    symbolic = keras.tree.map_structure(lambda spec: keras.KerasTensor(spec.shape, dtype=spec.dtype), x)
    outputs = model.compute_output_spec(symbolic)
    if all(None not in tensor.shape[1:] for tensor in keras.tree.flatten(outputs)):
        return outputs
    # A layer may not say what shape it makes of known ones, as where it reshapes: the framework's own trace tells.
    try:
        return keras.Operation.compute_output_spec(model, symbolic)
    except Exception:  # what a layer computes with may be there in training alone
        return outputs


def _losses(model: Any, outputs: Any) -> list[str]:
    """The name of the loss of each output, in the order of the outputs."""
    import keras

    num_outputs = len(keras.tree.flatten(outputs))
    loss = model.loss
    if isinstance(loss, dict):
        places = keras.tree.pack_sequence_as(outputs, list(range(num_outputs)))
        in_order = isinstance(places, dict) and sorted(places, key=lambda key: places[key])
        keys = in_order or getattr(model, "output_names", [])
        losses = [loss.get(key) for key in keys]
    else:
        losses = keras.tree.flatten(loss)
    if len(losses) != num_outputs:  # one for all of them
        losses = [" ".join(map(name_of, losses))] * num_outputs
    return [name_of(loss) for loss in losses]


def name_of(loss: Any) -> str:
    """The name of a loss: of an object, a function or a string."""
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", None) or loss)


def symbolic_calls() -> AbstractContextManager[None]:
    """A scope for `compute_output_spec` and what uses it: shapes without running anything on the device.

    JAX and TensorFlow trace the call; PyTorch would run it, so that it gets fake tensors.
    """
    import keras

    if keras.backend.backend() != "torch":
        return nullcontext()
    from fitroom.backends.torch.trace.symbolic import symbolic_calls

    return symbolic_calls()
