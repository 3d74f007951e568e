"""The cases whose memory is measured on a card and predicted without one, split in two halves beforehand.

Whatever is fitted in an estimator is fitted on the half "tune"; the half "held-out" is looked at once, to report it.
A configuration (model, size, batch, precision, optimizer) is in the same half on every backend, by a hash of its name.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

SPLIT_SEED = "fitroom accuracy 1"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training step."""

    backend: str
    model: str
    size: int
    """Pixels a side; tokens of a text; features of the dense net."""

    batch_size: int
    precision: str = "float32"
    optimizer: str = "adam"
    jit: bool
    """`jit_compile` on TensorFlow; JAX always compiles, PyTorch never."""

    feed: str
    """"fit": `model.fit` on NumPy arrays of four batches. "batches": `model.fit` on a dataset that makes one batch at a
    time. "resident": one batch that stays on the card."""

    @property
    def configuration(self) -> str:
        """What is trained, whatever trains it."""
        return f"{self.model}-{self.size}-b{self.batch_size}-{self.precision}-{self.optimizer}"

    @property
    def name(self) -> str:
        """Readable and unique."""
        mode = {True: "-jit", False: "-graph"}[self.jit] if self.backend == "tensorflow" else ""
        return f"{self.backend}{mode}-{self.configuration}-{self.feed}"

    @property
    def half(self) -> Literal["tune", "held-out"]:
        """Which half of the split the case is in."""
        digest = hashlib.sha256(f"{SPLIT_SEED}:{self.configuration}".encode()).digest()
        return "held-out" if digest[0] % 2 else "tune"

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


_IMAGES = (
    # model, pixels, batch, precision, optimizer, columns: j(ax), t(orch), g(raph) and c(ompiled) on TensorFlow
    ("Xception", 299, 64, "float32", "adam", "jtgc"),
    ("Xception", 299, 128, "float32", "adam", "j"),
    ("Xception", 299, 64, "mixed_bfloat16", "adam", "jtgc"),
    ("Xception", 299, 16, "float32", "adam", "jtg"),
    ("Xception", 299, 32, "mixed_float16", "adam", "jtgc"),
    ("Xception", 512, 16, "float32", "momentum", "jtgc"),
    ("Xception", 96, 256, "float32", "adamw", "tg"),
    ("ResNet50", 224, 64, "float32", "adam", "jtgc"),
    ("ResNet50", 224, 64, "mixed_bfloat16", "sgd", "jtgc"),
    ("ResNet50", 384, 32, "float32", "momentum", "tg"),
    ("ResNet101", 224, 32, "float32", "adam", "jtgc"),
    ("ResNet101", 224, 64, "mixed_float16", "momentum", "tg"),
    ("VGG16", 224, 32, "float32", "adam", "jtgc"),
    ("VGG16", 224, 64, "mixed_bfloat16", "adam", "jtgc"),
    ("InceptionV3", 299, 32, "float32", "adam", "jtgc"),
    ("InceptionV3", 299, 64, "mixed_float16", "adamw", "tg"),
    ("DenseNet121", 224, 32, "float32", "adam", "jtgc"),
    ("DenseNet121", 224, 64, "mixed_bfloat16", "adam", "tg"),
    ("MobileNetV2", 224, 128, "float32", "adam", "jtgc"),
    ("MobileNetV2", 96, 256, "float32", "momentum", "tg"),
    ("MobileNetV3Large", 224, 64, "mixed_bfloat16", "adam", "jtgc"),
    ("EfficientNetB0", 224, 64, "float32", "adam", "jtgc"),
    ("EfficientNetB0", 224, 64, "mixed_bfloat16", "adamw", "jtgc"),
    ("EfficientNetB3", 300, 32, "float32", "adam", "jtgc"),
    ("EfficientNetV2S", 384, 16, "float32", "adamw", "jtgc"),
    ("NASNetMobile", 224, 32, "float32", "adam", "jtgc"),
    ("ConvNeXtTiny", 224, 32, "float32", "adam", "jtgc"),
    ("ConvNeXtTiny", 224, 64, "mixed_bfloat16", "adamw", "tg"),
    ("SmallCNN", 180, 128, "float32", "adam", "jtgc"),
    ("SmallCNN", 256, 64, "mixed_float16", "momentum", "tg"),
)
_OTHERS = (
    ("MLP", 2048, 1024, "float32", "adam", "jtgc"),
    ("LSTM", 200, 128, "float32", "adam", "jtgc"),
    ("Transformer", 128, 64, "float32", "adamw", "jtgc"),
    ("Transformer", 256, 32, "mixed_bfloat16", "adam", "jtgc"),
)
_ALSO_FED_BY_FIT = (
    ("Xception", 299, 64, "float32", "adam"),
    ("Xception", 299, 64, "mixed_bfloat16", "adam"),
    ("SmallCNN", 180, 128, "float32", "adam"),
)
_COLUMNS: dict[str, dict[str, Any]] = {
    "j": {"backend": "jax", "jit": True, "feed": "resident"},
    "t": {"backend": "torch", "jit": False, "feed": "fit"},
    "g": {"backend": "tensorflow", "jit": False, "feed": "fit"},
    "c": {"backend": "tensorflow", "jit": True, "feed": "fit"},
}


def _cases(rows: tuple[tuple[Any, ...], ...]) -> Iterator[Case]:
    for *configuration, columns in rows:
        names = ("model", "size", "batch_size", "precision", "optimizer")
        fields: dict[str, Any] = dict(zip(names, configuration, strict=True))
        for column in columns:
            yield Case(**fields, **_COLUMNS[column])
        if tuple(configuration) in _ALSO_FED_BY_FIT:
            yield Case(**fields, **_COLUMNS["j"] | {"feed": "fit"})


CASES: tuple[Case, ...] = tuple(_cases((*_IMAGES, *_OTHERS)))

_PROBES = (
    ("ResNet50", 160, 32, "float32", "adam", "tg"),
    ("ResNet50", 192, 32, "mixed_float16", "momentum", "tg"),
    ("MobileNetV2", 192, 64, "float32", "adam", "tgc"),
    ("DenseNet121", 160, 32, "float32", "sgd", "tgc"),
    ("DenseNet121", 128, 32, "mixed_bfloat16", "adam", "tg"),
    ("ConvNeXtTiny", 160, 16, "float32", "adam", "tgc"),
    ("ConvNeXtTiny", 128, 32, "mixed_float16", "adamw", "tg"),
    ("MobileNetV3Small", 224, 64, "float32", "adam", "tg"),
    ("MobileNetV3Small", 192, 128, "mixed_bfloat16", "adam", "tgc"),
    ("EfficientNetV2B0", 224, 32, "float32", "adam", "tgc"),
    ("InceptionV3", 224, 32, "float32", "sgd", "tg"),
    ("MLP", 1024, 512, "float32", "momentum", "tgc"),
    ("LSTM", 100, 64, "float32", "adam", "tgc"),
    ("Transformer", 96, 48, "mixed_float16", "adam", "tg"),
)
PROBES: tuple[Case, ...] = tuple(_cases(_PROBES))
"""Further configurations to learn from; not part of what is reported."""
