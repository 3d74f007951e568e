"""The cases whose memory is measured on a card and predicted without one."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training step."""

    model: str
    batch_size: int
    image_size: int
    precision: str = "float32"
    optimizer: str = "adam"
    backend: str = "jax"
    feed: str = "resident"
    """"resident": one batch that stays on the card. "fit": `model.fit` on NumPy arrays."""

    @property
    def name(self) -> str:
        """Readable and unique."""
        parts = (self.model, f"{self.image_size}px", f"b{self.batch_size}", self.precision, self.optimizer, self.feed)
        return "-".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def build(case: Case) -> Any:
    """The compiled model of a case."""
    import keras

    keras.config.set_dtype_policy(case.precision)
    if case.model == "SmallCNN":
        model = small_cnn(case.image_size)
    else:
        make = getattr(keras.applications, case.model)
        model = make(weights=None, input_shape=(case.image_size, case.image_size, 3), classes=5)
    model.compile(case.optimizer, "sparse_categorical_crossentropy")
    return model


def small_cnn(image_size: int) -> Any:
    """What a tutorial starts with: no BatchNormalization, one dropout."""
    import keras
    from keras import layers

    return keras.Sequential(
        [
            keras.Input((image_size, image_size, 3)),
            *(
                part
                for filters in (32, 64, 128)
                for part in (layers.Conv2D(filters, 3, padding="same", activation="relu"), layers.MaxPooling2D())
            ),
            layers.Flatten(),
            layers.Dense(256, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(5, activation="softmax"),
        ]
    )


_XCEPTION = {"model": "Xception", "image_size": 299}

CASES: tuple[Case, ...] = (
    Case(**_XCEPTION, batch_size=64),
    Case(**_XCEPTION, batch_size=128),
    Case(**_XCEPTION, batch_size=64, precision="mixed_bfloat16"),
    Case(**_XCEPTION, batch_size=16),
    Case(**_XCEPTION, batch_size=64, feed="fit"),
    Case(**_XCEPTION, batch_size=64, precision="mixed_bfloat16", feed="fit"),
    Case(**_XCEPTION, batch_size=32, precision="mixed_float16"),
    Case(model="ResNet50", image_size=224, batch_size=64),
    Case(model="ResNet50", image_size=224, batch_size=64, precision="mixed_bfloat16", optimizer="sgd"),
    Case(model="VGG16", image_size=224, batch_size=32),
    Case(model="VGG16", image_size=224, batch_size=64, precision="mixed_bfloat16"),
    Case(model="MobileNetV2", image_size=224, batch_size=128),
    Case(model="EfficientNetB0", image_size=224, batch_size=64),
    Case(model="EfficientNetB0", image_size=224, batch_size=64, precision="mixed_bfloat16", optimizer="adamw"),
    Case(model="DenseNet121", image_size=224, batch_size=32),
    Case(model="InceptionV3", image_size=299, batch_size=32),
    Case(model="ConvNeXtTiny", image_size=224, batch_size=32),
    Case(model="NASNetMobile", image_size=224, batch_size=32),
    Case(model="MobileNetV3Large", image_size=224, batch_size=64, precision="mixed_bfloat16"),
    Case(model="SmallCNN", image_size=180, batch_size=128),
    Case(model="SmallCNN", image_size=180, batch_size=128, feed="fit"),
)
