"""The batch a Keras model is fed: shapes and dtypes of its inputs and of the targets its loss wants."""

from dataclasses import dataclass
from typing import Any

from fitroom.errors import ModelError
from fitroom.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """Shape and dtype of one array of a batch."""

    shape: tuple[int, ...]
    dtype: str


def input_specs(model: Any, batch_size: int, recipe: Recipe) -> Any:
    """What the model takes, as it takes it, with the micro-batch filled in."""
    import keras

    micro_batch = recipe.micro_batch(batch_size)
    return keras.tree.map_structure(lambda tensor: _filled(tensor, micro_batch, recipe), _inputs(model))


def target_specs(model: Any, x: Any) -> tuple[Any, ...]:
    """What the loss may want as targets, the likeliest first: class numbers, or arrays like the outputs."""
    import keras

    shapes = _output_shapes(model, x)
    like_outputs = [TensorSpec(shape=shape, dtype="float32") for shape in shapes]
    class_numbers = [TensorSpec(shape=shape[:-1], dtype="int32") for shape in shapes]
    structure = _outputs_structure(model, len(shapes))
    losses = [_name_of(loss) for loss in keras.tree.flatten(model.loss)]
    if len(losses) == len(shapes):
        first = [
            numbers if "sparse" in name else like
            for name, numbers, like in zip(losses, class_numbers, like_outputs, strict=True)
        ]
    else:
        first = class_numbers if any("sparse" in name for name in losses) else like_outputs
    candidates = [first, like_outputs, class_numbers]
    return tuple(keras.tree.pack_sequence_as(structure, specs) for specs in candidates)


def _inputs(model: Any) -> Any:
    import keras

    if not model.built:
        raise ModelError(
            f"The model {model.name!r} is not built: its input shape is unknown.",
            hint="give it a `keras.Input`, or call `model.build((None, height, width, channels))`",
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
        return keras.KerasTensor(shape, dtype=keras.config.floatx(), name="input")


def _filled(tensor: Any, micro_batch: int, recipe: Recipe) -> TensorSpec:
    batch, *rest = tensor.shape
    if batch not in (None, micro_batch):
        raise ModelError(
            f"The model's input {tensor.name!r} has a fixed batch of {batch}. Received: {micro_batch}.",
            hint=f"ask for a batch of {batch}, or build the model without `batch_size` in its Input",
        )
    if recipe.image_size is not None and len(rest) == 3:
        if any(size not in (None, recipe.image_size) for size in rest[:2]):
            raise ModelError(
                f"The model takes pictures of {rest[0]} x {rest[1]}. Received: image size {recipe.image_size}.",
                hint="leave the image size out, or build the model for the size you want",
            )
        rest[:2] = [recipe.image_size] * 2
    if None in rest:
        raise ModelError(
            f"The model's input {tensor.name!r} has undefined dimensions: {tensor.shape}.",
            hint="memory depends on them: give --image-size for pictures, or fix the shape in its `keras.Input`",
        )
    return TensorSpec(shape=(micro_batch, *rest), dtype=recipe.input_dtype or str(tensor.dtype))


def _output_shapes(model: Any, x: Any) -> list[tuple[int, ...]]:
    import keras

    batch = keras.tree.flatten(x)[0].shape[0]
    outputs = getattr(model, "outputs", None)
    if outputs and all(None not in tensor.shape[1:] for tensor in outputs):
        return [(batch, *tensor.shape[1:]) for tensor in outputs]
    symbolic = keras.tree.map_structure(lambda spec: keras.KerasTensor(spec.shape, dtype=spec.dtype), x)
    specs = keras.tree.flatten(model.compute_output_spec(symbolic))
    return [tuple(spec.shape) for spec in specs]


def _outputs_structure(model: Any, num_outputs: int) -> Any:
    try:
        return model.output
    except (AttributeError, ValueError):
        return 0 if num_outputs == 1 else [0] * num_outputs


def _name_of(loss: Any) -> str:
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", None) or loss)
