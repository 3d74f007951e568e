"""Models as users bring them: augmentation inside, dimensions left open."""

import keras
from keras import layers


def augmented_model(size=64, *, rotate=True, crop=False, **options):
    """A small net with layers that Keras runs without jit, and one that PyTorch's device "meta" cannot do."""
    keras.utils.set_random_seed(0)
    pictures = keras.Input((size, size, 3))
    x = layers.RandomFlip(seed=2)(pictures)
    x = layers.RandomRotation(0.1, seed=1)(x) if rotate else x
    x = layers.RandomCrop(size - 4, size - 4)(x) if crop else x
    x = layers.SeparableConv2D(8, 3, padding="same", activation="relu")(x)
    x = layers.UpSampling2D()(layers.Conv2D(8, 3, strides=2, activation="relu")(x))
    return _classifier(pictures, x, **options)


def picture_model():
    """Pictures of any size."""
    pictures = keras.Input((None, None, 3), name="pictures")
    return _classifier(pictures, layers.Conv2D(8, 3, padding="same", activation="relu")(pictures))


def token_model():
    """Texts of any length."""
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    return _classifier(tokens, layers.Embedding(50, 8)(tokens))


def compiled(model, **options):
    """Compiled once more, in another way."""
    model.compile("sgd", "sparse_categorical_crossentropy", **options)
    return model


def _classifier(inputs, x, **options):
    pool = layers.GlobalAveragePooling2D() if len(x.shape) == 4 else layers.GlobalAveragePooling1D()
    model = keras.Model(inputs, layers.Dense(3, activation="softmax")(pool(x)))
    return compiled(model, **options)
