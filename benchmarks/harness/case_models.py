"""The compiled Keras model of a case, and a batch for it."""

from typing import Any

from harness.cases import Case

STEPS = 4
"""How many batches there are in an epoch."""

CLASSES = 5
WORDS = 20_000


def build(case: Case) -> Any:
    """The compiled model of a case."""
    import keras

    keras.config.set_dtype_policy(case.precision)
    make = _OWN_MODELS.get(case.model, _application)
    model = make(case)
    momentum = case.optimizer == "momentum"
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9) if momentum else case.optimizer
    jit = {"jit_compile": case.jit} if case.backend == "tensorflow" else {}
    model.compile(optimizer, "sparse_categorical_crossentropy", **jit)
    return model


def samples(case: Case, number: int) -> tuple[Any, Any]:
    """Inputs and labels as NumPy arrays; their values do not matter."""
    import numpy as np

    shapes = {"MLP": (case.size,), "LSTM": (case.size,), "Transformer": (case.size,)}
    shape = shapes.get(case.model, (case.size, case.size, 3))
    dtype = "int32" if case.model in ("LSTM", "Transformer") else "float32"
    return np.zeros((number, *shape), dtype), np.zeros(number, "int32")


def batches(case: Case, number: int) -> Any:
    """The same as a `keras.utils.PyDataset`: one batch at a time."""
    import keras

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return number

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            return samples(case, case.batch_size)

    return Batches()


def _application(case: Case) -> Any:
    import keras

    make = getattr(keras.applications, case.model)
    return make(weights=None, input_shape=(case.size, case.size, 3), classes=CLASSES)


def small_cnn(image_size: int) -> Any:
    """What a tutorial starts with: no BatchNormalization, one dropout."""
    import keras
    from keras import layers

    convolutions = [
        part
        for filters in (32, 64, 128)
        for part in (layers.Conv2D(filters, 3, padding="same", activation="relu"), layers.MaxPooling2D())
    ]
    head = [
        layers.Flatten(),
        layers.Dense(256, activation="relu"),
        layers.Dropout(0.5),
        layers.Dense(CLASSES, activation="softmax"),
    ]
    return keras.Sequential([keras.Input((image_size, image_size, 3)), *convolutions, *head])


def _mlp(case: Case) -> Any:
    import keras
    from keras import layers

    hidden = [part for _ in range(4) for part in (layers.Dense(4096, activation="relu"), layers.Dropout(0.2))]
    return keras.Sequential([keras.Input((case.size,)), *hidden, layers.Dense(CLASSES, activation="softmax")])


def _lstm(case: Case) -> Any:
    """Keras's own loop on TensorFlow and PyTorch: cuDNN's recurrent kernels can only be traced where they are."""
    import keras
    from keras import layers

    return keras.Sequential(
        [
            keras.Input((case.size,), dtype="int32"),
            layers.Embedding(WORDS, 128),
            layers.LSTM(256, use_cudnn=False),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def _transformer(case: Case) -> Any:
    import keras
    from keras import layers

    words = keras.Input((case.size,), dtype="int32")
    x = layers.Embedding(WORDS, 256)(words)
    for _ in range(4):
        attention = layers.MultiHeadAttention(num_heads=8, key_dim=32, dropout=0.1)(x, x)
        x = layers.LayerNormalization()(layers.Add()([x, attention]))
        hidden = layers.Dense(256)(layers.Dense(1024, activation="gelu")(x))
        x = layers.LayerNormalization()(layers.Add()([x, layers.Dropout(0.1)(hidden)]))
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(words, layers.Dense(CLASSES, activation="softmax")(x))


_OWN_MODELS = {"SmallCNN": lambda case: small_cnn(case.size), "MLP": _mlp, "LSTM": _lstm, "Transformer": _transformer}
