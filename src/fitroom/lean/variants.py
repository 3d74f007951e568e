"""The changes that `fitroom lean` looks at: each as a changed model, without values, or as another recipe."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from fitroom.errors import FitroomError
from fitroom.keras_model.freezing import layers_with_weights
from fitroom.keras_model.layers import layer_paths
from fitroom.keras_model.loading.application import application_name, application_names, is_application
from fitroom.keras_model.twin import without_values
from fitroom.lean.adapting import add_adapters, why_not_adapted
from fitroom.lean.network import check_model, read_network
from fitroom.lean.rebuilding import Rebuilt, copy_layer, layers_of
from fitroom.lean.selection import select_channels
from fitroom.lean.separating import separate, why_not_separable
from fitroom.lean.structured import build_pruned
from fitroom.recipe import Recipe

Risk = Literal["low", "medium", "high"]
RISKS: dict[Risk, int] = {"low": 1, "medium": 2, "high": 4}
"""How much accuracy a change usually costs, as a weight for the order of rows."""

_PIXELS_STEP = 32
_RANK = 8
_LARGE_ACTIVATIONS = ("silu", "swish", "gelu", "mish", "selu", "elu", "softplus", "hard_silu", "hard_swish")
"""Activations that keep their input for the backward pass; a ReLU needs only its output, which the next layer keeps."""

_FAMILIES = (
    ("ResNet50", "ResNet101", "ResNet152"),
    ("ResNet50V2", "ResNet101V2", "ResNet152V2"),
    ("DenseNet121", "DenseNet169", "DenseNet201"),
    ("VGG16", "VGG19"),
    ("NASNetMobile", "NASNetLarge"),
    ("MobileNetV3Small", "MobileNetV3Large"),
    tuple(f"EfficientNetB{number}" for number in range(8)),
    ("EfficientNetV2B0", "EfficientNetV2B1", "EfficientNetV2B2", "EfficientNetV2B3"),
    ("EfficientNetV2S", "EfficientNetV2M", "EfficientNetV2L"),
    ("ConvNeXtTiny", "ConvNeXtSmall", "ConvNeXtBase", "ConvNeXtLarge", "ConvNeXtXLarge"),
)
"""Families of keras.applications, the smallest model first."""

_WIDTHS = {"MobileNet": "alpha", "MobileNetV2": "alpha", "MobileNetV3Small": "alpha", "MobileNetV3Large": "alpha"}
_WIDTH = 0.5


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One change."""

    name: str
    risk: Risk
    how: str
    """How to make it: a command or a call."""

    model: Callable[[], Any]
    """Builds the changed model, without values."""

    recipe: Recipe = field(default_factory=Recipe)
    knob: str | None = None
    """The name for `fitroom plan --allow`, where the planner can make the change."""


def find_variants(text: str, model: Any, rebuild: Callable[[int], Any] | None, batch_size: int) -> list[Variant]:
    """The changes that apply to a model, in the order in which they are looked at."""
    check_model(model)
    # The optimizers come last: what they save is the easiest to interpolate.
    return [
        *_smaller_images(model, rebuild),
        *_pruned(model),
        *_siblings(text, model),
        *_frozen(model),
        *_adapted(model),
        *_separable(model),
        *_activations(model),
        *_group_normalization(model, batch_size),
        *_optimizers(model),
    ]


def _optimizers(model: Any) -> Iterator[Variant]:
    own = type(model.optimizer).__name__.lower() if getattr(model, "optimizer", None) else "adam"
    offers: tuple[tuple[str, Risk], ...] = (("adafactor", "low"), ("lion", "low"), ("sgd", "medium"))
    if own in ("sgd", "adafactor"):
        return
    for name, risk in offers:
        if name != own:
            yield Variant(
                name=f"optimizer {name}",
                risk=risk,
                how=f"fitroom train ... --optimizer {name}",
                model=lambda: model,
                recipe=Recipe(optimizer=name),
                knob="optimizer",
            )


def _smaller_images(model: Any, rebuild: Callable[[int], Any] | None) -> Iterator[Variant]:
    own = model.inputs[0].shape[1] if len(model.inputs) == 1 and len(model.inputs[0].shape) == 4 else None
    if rebuild is None or not own:
        return
    size = max(_PIXELS_STEP, round(0.75 * own / _PIXELS_STEP) * _PIXELS_STEP)
    if size >= own:
        return
    try:
        rebuild(size)
    except FitroomError:  # too small for the model, or weights that depend on the size
        return
    yield Variant(
        name=f"images of {size} x {size}",
        risk="medium",
        how=f"fitroom train ... --image-size {size}",
        model=lambda: rebuild(size),
        knob="image-size",
    )


def _pruned(model: Any) -> Iterator[Variant]:
    network = read_network(model)
    selection = select_channels(network.channels, {}, 0.5)
    if selection.removed:
        yield Variant(
            name="channels pruned by half",
            risk="high",
            how="fitroom compress RUN --sparsity 0.5, or fitroom.lean.prune(model, 0.5), then train on",
            model=lambda: build_pruned(network, selection, values=False),
        )


def _siblings(text: str, model: Any) -> Iterator[Variant]:
    """A model of half the width, and the next smaller one of the family."""
    if not is_application(text):
        return
    name = application_name(text)
    shape, classes = tuple(model.inputs[0].shape[1:]), model.outputs[0].shape[-1]

    def build(other: str, **options: Any) -> Any:
        with without_values():
            return application_names()[other](weights=None, input_shape=shape, classes=classes, **options)

    if name in _WIDTHS:
        yield Variant(
            name=f"width {_WIDTH}",
            risk="high",
            how=f"keras.applications.{name}(alpha={_WIDTH})",
            model=lambda: build(name, alpha=_WIDTH),
        )
    family = next((family for family in _FAMILIES if name in family), (name,))
    if family.index(name):
        smaller = family[family.index(name) - 1]
        yield Variant(
            name=f"{smaller} instead", risk="medium", how=f"--model {smaller.lower()}", model=lambda: build(smaller)
        )


def _frozen(model: Any) -> Iterator[Variant]:
    try:
        number = len(layers_with_weights(model)) // 2
    except FitroomError:  # layers without an order
        return
    if number:
        yield Variant(
            name=f"first {number} layers frozen",
            risk="medium",
            how=f"fitroom.freeze(model, {number}), from pretrained weights",
            model=lambda: model,
            recipe=Recipe(frozen_layers=number),
            knob="frozen-layers",
        )


def _adapted(model: Any) -> Iterator[Variant]:
    weighted = [layer for _, layer in layers_of(model) if layer.weights]
    adapted = {id(layer) for layer in weighted[:-1] if why_not_adapted(layer) is None}
    if not adapted:
        return

    def build() -> Any:
        rebuilt = Rebuilt(model, copy_layer, values=False)
        with without_values():
            add_adapters(rebuilt, _RANK, adapted, {id(weighted[-1])})
        rebuilt.compile_as_before()
        return rebuilt.model

    yield Variant(
        name=f"LoRA of rank {_RANK}",
        risk="medium",
        how=f"fitroom.lean.adapt(model, {_RANK}, train=[{weighted[-1].name!r}]), from pretrained weights",
        model=build,
    )


def _separable(model: Any) -> Iterator[Variant]:
    if any(why_not_separable(layer, 1) is None for _, layer in layers_of(model)):
        yield Variant(
            name="separable convolutions",
            risk="high",
            how="fitroom.lean.separable(model), then train on",
            model=lambda: _replaced(
                model, lambda layer: separate(layer) if why_not_separable(layer, 1) is None else None
            ),
        )


def _activations(model: Any) -> Iterator[Variant]:
    def replace(layer: Any) -> Any:
        named = getattr(getattr(layer, "activation", None), "__name__", "")
        return copy_layer(layer, activation="relu") if named in _LARGE_ACTIVATIONS else None

    if any(replace(layer) is not None for _, layer in layer_paths(model)):
        yield Variant(
            name="ReLU activations",
            risk="medium",
            how="activation='relu' in place of what keeps its input; train from the start",
            model=lambda: _replaced(model, replace),
        )


def _group_normalization(model: Any, batch_size: int) -> Iterator[Variant]:
    """GroupNormalization: its statistics do not depend on the batch, so that micro-batches may be tiny."""
    import keras

    if not any(type(layer).__name__ == "BatchNormalization" for _, layer in layer_paths(model)):
        return

    def replace(layer: Any) -> Any:
        if type(layer).__name__ != "BatchNormalization":
            return None
        channels = layer.moving_mean.shape[0]
        groups = next(number for number in (32, 16, 8, 4, 2, 1) if channels % number == 0)
        return keras.layers.GroupNormalization(groups, axis=layer.axis, name=layer.name, dtype=layer.dtype_policy)

    micro_batch = max(1, batch_size // 8)
    if micro_batch >= batch_size:
        return
    yield Variant(
        name=f"GroupNorm, micro-batch {micro_batch}",
        risk="medium",
        how=f"GroupNormalization in place of BatchNormalization, Recipe(micro_batch={micro_batch}); from the start",
        model=lambda: _replaced(model, replace),
        recipe=Recipe(step="fitroom", micro_batch=micro_batch),
    )


def _replaced(model: Any, replace: Callable[[Any], Any]) -> Any:
    """The model with other layers where `replace` returns one."""
    rebuilt = Rebuilt(model, lambda layer: replace(layer) or copy_layer(layer), values=False)
    rebuilt.compile_as_before()
    return rebuilt.model
