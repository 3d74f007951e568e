# mypy: ignore-errors
# Classes of Keras are made within functions here, where it is not imported yet.
"""Models of the corpus for what no package's models cover: attention, normalisation, several inputs, own steps.

Each function takes nothing, has `keras` at hand, and returns a model that is not compiled unless it says so.
"""

from typing import Any

CLASSES = 5


def _keras() -> tuple[Any, Any]:
    import keras
    from keras import layers

    return keras, layers


def attention_variants() -> Any:
    """Dot-product, additive, grouped-query and multi-head attention, each over the same sequence."""
    keras, layers = _keras()
    words = keras.Input((96,), dtype="int32")
    x = layers.Embedding(3000, 96)(words)
    x = layers.Add()([x, layers.Attention(use_scale=True)([x, x])])
    x = layers.Add()([x, layers.AdditiveAttention()([x, x])])
    x = layers.Add()([x, layers.GroupQueryAttention(24, 4, 2)(x, x)])
    x = layers.Add()([x, layers.MultiHeadAttention(4, 24)(x, x, use_causal_mask=True)])
    x = layers.LayerNormalization()(x)
    return keras.Model(words, layers.Dense(CLASSES, activation="softmax")(layers.GlobalAveragePooling1D()(x)))


def attention_masked() -> Any:
    """Multi-head attention with the mask of an embedding and one that is an input, in two precisions."""
    keras, layers = _keras()
    words, mask = keras.Input((96,), dtype="int32", name="words"), keras.Input((96, 96), dtype="bool", name="mask")
    x = layers.Embedding(3000, 64, mask_zero=True)(words)
    for _ in range(2):
        x = layers.LayerNormalization()(layers.Add()([x, layers.MultiHeadAttention(4, 16)(x, x, attention_mask=mask)]))
        x = layers.Add()([x, layers.Dense(64)(layers.Dense(256, activation="gelu")(x))])
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model({"words": words, "mask": mask}, layers.Dense(CLASSES, activation="softmax", dtype="float32")(x))


def attention_flash() -> Any:
    """Causal attention without dropout in half precision: what Keras gives to a fused kernel where there is one."""
    keras, layers = _keras()
    words = keras.Input((512,), dtype="int32")
    x = layers.Embedding(4000, 256)(words)
    for _ in range(2):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(4, 64)(y, y, use_causal_mask=True)])
        x = layers.Add()([x, layers.Dense(256)(layers.Dense(512, activation="gelu")(layers.LayerNormalization()(x)))])
    return keras.Model(words, layers.Dense(4000)(x))


def attention_seq2seq() -> Any:
    """An encoder and a decoder with cross-attention, from two inputs of different lengths."""
    keras, layers = _keras()
    source, target = keras.Input((48,), dtype="int32", name="source"), keras.Input((32,), dtype="int32", name="target")
    encoded = layers.Embedding(2000, 64)(source)
    encoded = layers.LayerNormalization()(layers.Add()([encoded, layers.MultiHeadAttention(4, 16)(encoded, encoded)]))
    x = layers.Embedding(2000, 64)(target)
    x = layers.Add()([x, layers.MultiHeadAttention(4, 16)(x, x, use_causal_mask=True)])
    x = layers.Add()([x, layers.MultiHeadAttention(4, 16, dropout=0.1)(x, encoded)])
    return keras.Model([source, target], layers.Dense(2000, activation="softmax")(layers.LayerNormalization()(x)))


def normalisations() -> Any:
    """Every normalisation of Keras in one convolutional network."""
    keras, layers = _keras()
    x = images = keras.Input((64, 64, 3))
    kinds = (
        layers.BatchNormalization(),
        layers.LayerNormalization(),
        layers.GroupNormalization(8),
        layers.GroupNormalization(-1),
        layers.RMSNormalization(),
        layers.UnitNormalization(),
    )
    for kind in kinds:
        x = layers.Conv2D(32, 3, padding="same")(x)
        x = layers.Activation("silu")(kind(x))
    x = layers.SpectralNormalization(layers.Conv2D(32, 3))(x)
    return keras.Model(images, layers.Dense(CLASSES, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


def regularised() -> Any:
    """Dropout of each kind, noise, regularisers, and a loss that a layer adds."""
    keras, layers = _keras()
    x = images = keras.Input((48, 48, 3))
    for filters in (32, 64):
        x = layers.Conv2D(filters, 3, padding="same", kernel_regularizer="l2")(x)
        x = layers.SpatialDropout2D(0.1)(layers.GaussianNoise(0.1)(x))
        x = layers.MaxPooling2D()(layers.Activation("elu")(x))
    x = layers.ActivityRegularization(l2=1e-4)(layers.Flatten()(x))
    x = layers.AlphaDropout(0.1)(layers.GaussianDropout(0.1)(layers.Dense(64, activation="selu")(x)))
    return keras.Model(images, layers.Dense(CLASSES, activation="softmax")(x))


def stochastic_depth() -> Any:
    """Residual blocks that are left out at random, by a layer of its own, with `ops` between layers."""
    keras, layers = _keras()

    class DropPath(layers.Layer):
        def __init__(self, rate: float, **more: Any) -> None:
            super().__init__(**more)
            self.rate = rate
            self.seeds = keras.random.SeedGenerator(1)

        def call(self, x: Any, training: bool = False) -> Any:
            if not training:
                return x
            kept = keras.random.uniform((keras.ops.shape(x)[0], 1, 1, 1), seed=self.seeds) > self.rate
            return x * keras.ops.cast(kept, x.dtype) / (1 - self.rate)

    x = images = keras.Input((64, 64, 3))
    x = layers.Conv2D(48, 4, strides=4)(x)
    for number in range(4):
        y = layers.DepthwiseConv2D(7, padding="same")(x)
        y = layers.Dense(192, activation="gelu")(layers.LayerNormalization()(y))
        y = keras.ops.multiply(y, keras.ops.sigmoid(y))
        x = layers.Add()([x, DropPath(0.1 * number)(layers.Dense(48)(y))])
    return keras.Model(images, layers.Dense(CLASSES, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


def augmentation_inside() -> Any:
    """Augmentation layers within the model, for which Keras runs the step without jit."""
    keras, layers = _keras()
    x = images = keras.Input((96, 96, 3))
    for layer in (layers.RandomFlip(), layers.RandomRotation(0.1), layers.RandomZoom(0.1), layers.RandomContrast(0.1)):
        x = layer(x)
    x = layers.Rescaling(1 / 255)(x)
    for filters in (32, 64):
        x = layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(x)
    return keras.Model(images, layers.Dense(CLASSES, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


def augmentation_crop() -> Any:
    """Random crops and translations, and brightness, within the model."""
    keras, layers = _keras()
    x = images = keras.Input((80, 80, 3))
    x = layers.RandomBrightness(0.2)(layers.RandomTranslation(0.1, 0.1)(layers.RandomCrop(64, 64)(x)))
    x = layers.Conv2D(32, 3, activation="relu")(x)
    x = layers.Conv2D(32, 3, activation="relu")(layers.MaxPooling2D()(x))
    return keras.Model(images, layers.Dense(CLASSES, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


def several_inputs_and_outputs() -> Any:
    """An image, words and numbers in; a class, a mask and a number out; two losses of Keras's, one weight each."""
    keras, layers = _keras()
    image = keras.Input((64, 64, 3), name="image")
    words = keras.Input((32,), dtype="int32", name="words")
    numbers = keras.Input((16,), name="numbers")
    features = layers.Conv2D(32, 3, padding="same", activation="relu")(image)
    text = layers.GlobalAveragePooling1D()(layers.Embedding(1000, 32)(words))
    joined = layers.Concatenate()([layers.GlobalAveragePooling2D()(features), text, layers.Dense(32)(numbers)])
    outputs = {
        "kind": layers.Dense(CLASSES, activation="softmax", name="kind")(joined),
        "mask": layers.Conv2D(1, 1, activation="sigmoid", name="mask")(features),
        "price": layers.Dense(1, name="price")(joined),
    }
    model = keras.Model({"image": image, "words": words, "numbers": numbers}, outputs)
    losses = {"kind": "sparse_categorical_crossentropy", "mask": "binary_crossentropy", "price": "huber"}
    model.compile("adam", losses, loss_weights={"kind": 1.0, "mask": 0.5, "price": 0.1}, metrics={"kind": "accuracy"})
    return model


def shared_and_nested() -> Any:
    """One nested network called on two inputs, a subclassed model within a functional one."""
    keras, layers = _keras()

    class Head(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = layers.Dense(64, activation="relu")
            self.out = layers.Dense(1, activation="sigmoid")

        def call(self, x: Any) -> Any:
            return self.out(self.hidden(x))

    tower = keras.Sequential(
        [keras.Input((64, 64, 1)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten()]
    )
    left, right = keras.Input((64, 64, 1)), keras.Input((64, 64, 1))
    apart = keras.ops.abs(layers.Subtract()([tower(left), tower(right)]))
    return keras.Model([left, right], Head()(apart))


def tabular_wide() -> Any:
    """Many small inputs by name, categories through embeddings, crossed with numbers."""
    keras, layers = _keras()
    categories = [keras.Input((1,), dtype="int32", name=f"category_{number}") for number in range(8)]
    numbers = [keras.Input((1,), name=f"number_{number}") for number in range(6)]
    embedded = [layers.Flatten()(layers.Embedding(5000, 16)(each)) for each in categories]
    x = layers.Concatenate()([*embedded, *numbers])
    for _ in range(3):
        x = layers.Add()([layers.Dense(134, activation="relu")(x), x])
    inputs = {each.name: each for each in (*categories, *numbers)}
    return keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))


def sparse_bag() -> Any:
    """A bag of words as a wide, mostly empty vector."""
    keras, layers = _keras()
    words = keras.Input((20_000,), name="bag")
    return keras.Model(words, layers.Dense(CLASSES, activation="softmax")(layers.Dense(64, activation="relu")(words)))


def mlp_mixer() -> Any:
    """Patches mixed over places and channels by dense layers, with permutations between."""
    keras, layers = _keras()
    x = images = keras.Input((64, 64, 3))
    x = layers.Reshape((64, 96))(layers.Conv2D(96, 8, strides=8)(x))
    for _ in range(3):
        y = layers.Permute((2, 1))(layers.LayerNormalization()(x))
        y = layers.Permute((2, 1))(layers.Dense(64)(layers.Dense(128, activation="gelu")(y)))
        x = layers.Add()([x, y])
        x = layers.Add()([x, layers.Dense(96)(layers.Dense(256, activation="gelu")(layers.LayerNormalization()(x)))])
    return keras.Model(images, layers.Dense(CLASSES, activation="softmax")(layers.GlobalAveragePooling1D()(x)))


def deep_einsum() -> Any:
    """EinsumDense and `ops` of linear algebra between layers."""
    keras, layers = _keras()
    x = series = keras.Input((64, 32))
    x = layers.EinsumDense("btc,cd->btd", output_shape=(None, 128), bias_axes="d", activation="relu")(x)
    scores = keras.ops.softmax(keras.ops.einsum("btd,bsd->bts", x, x) / 11.3)
    x = keras.ops.matmul(scores, x)
    x = keras.ops.concatenate([keras.ops.cumsum(x, axis=1), keras.ops.roll(x, 1, axis=1)], axis=-1)
    x = keras.ops.where(x > 0, x, keras.ops.expm1(x))
    top, _ = keras.ops.top_k(keras.ops.max(x, axis=1), 16)
    return keras.Model(series, layers.Dense(1)(top))


def variational_autoencoder() -> Any:
    """A subclassed model that adds its own loss in `call`, compiled without one."""
    keras, layers = _keras()

    class Sampling(layers.Layer):
        def __init__(self, **more: Any) -> None:
            super().__init__(**more)
            self.seeds = keras.random.SeedGenerator(1)

        def call(self, inputs: Any) -> Any:
            mean, log_variance = inputs
            noise = keras.random.normal(keras.ops.shape(mean), seed=self.seeds)
            divergence = -0.5 * keras.ops.mean(1 + log_variance - mean**2 - keras.ops.exp(log_variance))
            self.add_loss(divergence)
            return mean + keras.ops.exp(0.5 * log_variance) * noise

    images = keras.Input((32, 32, 1))
    x = layers.Conv2D(32, 3, strides=2, padding="same", activation="relu")(images)
    x = layers.Flatten()(layers.Conv2D(64, 3, strides=2, padding="same", activation="relu")(x))
    code = Sampling()([layers.Dense(8)(x), layers.Dense(8)(x)])
    x = layers.Reshape((8, 8, 64))(layers.Dense(4096, activation="relu")(code))
    x = layers.Conv2DTranspose(32, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.Conv2DTranspose(1, 3, strides=2, padding="same", activation="sigmoid")(x)
    return keras.Model(images, x)


def contrastive() -> Any:
    """A loss that couples all samples of a batch, so that the batch cannot be divided."""
    keras, layers = _keras()

    class CoupledLoss(keras.losses.Loss):
        def call(self, y_true: Any, y_pred: Any) -> Any:
            normal = keras.ops.normalize(y_pred, axis=-1)
            scores = keras.ops.matmul(normal, keras.ops.transpose(normal)) / 0.1
            numbers = keras.ops.arange(keras.ops.shape(scores)[0])
            return keras.losses.sparse_categorical_crossentropy(numbers, scores, from_logits=True)

    x = images = keras.Input((48, 48, 3))
    for filters in (32, 64):
        x = layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(x)
    model = keras.Model(images, layers.Dense(32)(layers.GlobalAveragePooling2D()(x)))
    model.compile("adam", CoupledLoss())
    return model


def own_train_step() -> Any:
    """A `train_step` of its own, for each backend as Keras's guides have it, with mixed samples."""
    keras, layers = _keras()
    backend = keras.backend.backend()
    base = keras.Model

    class OwnStep(base):
        if backend == "jax":

            def train_step(self, state: Any, data: Any) -> Any:
                import jax

                trainable, non_trainable, optimizer, metrics = state
                x, y = data[:2]

                def loss_of(trainable: Any, non_trainable: Any) -> Any:
                    y_pred, non_trainable = self.stateless_call(trainable, non_trainable, x, training=True)
                    return keras.ops.mean(keras.losses.mean_squared_error(y, y_pred)), non_trainable

                (loss, non_trainable), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable, non_trainable)
                trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
                return {"loss": loss}, (trainable, non_trainable, optimizer, metrics)

        elif backend == "tensorflow":

            def train_step(self, data: Any) -> Any:  # type: ignore[misc]
                import tensorflow as tf

                x, y = data[:2]
                with tf.GradientTape() as tape:
                    loss = keras.ops.mean(keras.losses.mean_squared_error(y, self(x, training=True)))
                gradients = tape.gradient(loss, self.trainable_variables)
                self.optimizer.apply(gradients, self.trainable_variables)
                return {"loss": loss}

        elif backend == "torch":

            def train_step(self, data: Any) -> Any:  # type: ignore[misc]
                import torch

                x, y = data[:2]
                self.zero_grad()
                loss = keras.ops.mean(keras.losses.mean_squared_error(y, self(x, training=True)))
                loss.backward()
                with torch.no_grad():
                    gradients = [variable.value.grad for variable in self.trainable_variables]
                    self.optimizer.apply(gradients, self.trainable_variables)
                return {"loss": loss}

    x = images = keras.Input((64, 64, 3))
    for filters in (32, 64):
        x = layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(x)
    model = OwnStep(images, layers.Dense(4)(layers.GlobalAveragePooling2D()(x)))
    model.compile("adam", "mean_squared_error")
    return model


def optimizer_with_everything() -> Any:
    """AdamW with a schedule, weight averages, clipping, and a scaled loss."""
    keras, _ = _keras()
    model = _small_cnn()
    schedule = keras.optimizers.schedules.CosineDecay(1e-3, 1000)
    inner = keras.optimizers.AdamW(schedule, weight_decay=0.01, use_ema=True, global_clipnorm=1.0)
    model.compile(keras.optimizers.LossScaleOptimizer(inner), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def optimizer_muon() -> Any:
    """Muon, whose update multiplies matrices."""
    keras, _ = _keras()
    model = _small_cnn()
    model.compile(keras.optimizers.Muon(1e-3), "sparse_categorical_crossentropy")
    return model


def optimizer_adafactor() -> Any:
    """Adafactor, which keeps rows and columns in place of whole slots."""
    keras, _ = _keras()
    model = _small_cnn()
    model.compile(keras.optimizers.Adafactor(1e-3), "sparse_categorical_crossentropy")
    return model


def optimizer_ftrl_centered() -> Any:
    """RMSprop, centered and with momentum: three slots."""
    keras, _ = _keras()
    model = _small_cnn()
    model.compile(keras.optimizers.RMSprop(1e-3, momentum=0.9, centered=True), "sparse_categorical_crossentropy")
    return model


def _small_cnn() -> Any:
    keras, layers = _keras()
    x = images = keras.Input((64, 64, 3))
    for filters in (32, 64, 128):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.MaxPooling2D()(layers.ReLU()(layers.BatchNormalization()(x)))
    x = layers.Dense(256, activation="relu")(layers.Flatten()(x))
    return keras.Model(images, layers.Dense(CLASSES, activation="softmax")(x))
