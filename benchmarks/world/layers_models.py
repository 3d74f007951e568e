"""Models of the corpus for layers that no package's models cover: convolutions, pooling, resizing, recurrence.

Each function takes nothing, has `keras` at hand, and returns a model that is not compiled unless it says so.
"""

from typing import Any

CLASSES = 5


def _keras() -> tuple[Any, Any]:
    import keras
    from keras import layers

    return keras, layers


def conv1d_audio() -> Any:
    """Strided, dilated and separable convolutions over a long signal, with average pooling."""
    keras, layers = _keras()
    x = signal = keras.Input((8192, 2))
    for filters in (32, 64, 128):
        x = layers.Conv1D(filters, 9, strides=2, padding="same", activation="relu")(x)
        x = layers.SeparableConv1D(filters, 5, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.Conv1D(filters, 3, dilation_rate=4, padding="causal", activation="tanh")(x)
        x = layers.AveragePooling1D(2)(x)
    x = layers.GlobalMaxPooling1D()(x)
    return keras.Model(signal, layers.Dense(CLASSES, activation="softmax")(x))


def conv1d_wavenet() -> Any:
    """Gated causal convolutions of growing dilation, with skips."""
    keras, layers = _keras()
    signal = keras.Input((4096, 1))
    x, skips = layers.Conv1D(32, 2, padding="causal")(signal), []
    for dilation in (1, 2, 4, 8, 16, 32):
        gate = layers.Conv1D(32, 2, padding="causal", dilation_rate=dilation, activation="sigmoid")(x)
        value = layers.Conv1D(32, 2, padding="causal", dilation_rate=dilation, activation="tanh")(x)
        found = layers.Conv1D(32, 1)(layers.Multiply()([gate, value]))
        skips.append(found)
        x = layers.Add()([x, found])
    x = layers.Activation("relu")(layers.Add()(skips))
    return keras.Model(signal, layers.Conv1D(1, 1)(x))


def conv3d_video() -> Any:
    """3-D convolutions with batch normalisation and max pooling."""
    keras, layers = _keras()
    x = frames = keras.Input((16, 64, 64, 3))
    for filters in (16, 32, 64):
        x = layers.Conv3D(filters, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.Activation("relu")(x)
        x = layers.MaxPooling3D(2)(x)
    x = layers.GlobalAveragePooling3D()(x)
    return keras.Model(frames, layers.Dense(CLASSES, activation="softmax")(x))


def conv3d_unet() -> Any:
    """A small 3-D U-Net: strided and transposed 3-D convolutions, up-sampling, zero padding and cropping."""
    keras, layers = _keras()
    volume = keras.Input((32, 32, 32, 1))
    high = layers.Conv3D(16, 3, padding="same", activation="relu")(volume)
    low = layers.Conv3D(32, 3, strides=2, padding="same", activation="relu")(high)
    lowest = layers.Conv3D(64, 3, activation="relu")(layers.ZeroPadding3D(1)(layers.AveragePooling3D(2)(low)))
    x = layers.Concatenate()([layers.Conv3DTranspose(32, 2, strides=2, padding="same")(lowest), low])
    x = layers.Concatenate()([layers.UpSampling3D(2)(layers.Conv3D(16, 3, padding="same")(x)), high])
    return keras.Model(volume, layers.Conv3D(1, 1, activation="sigmoid")(x))


def dilated_context() -> Any:
    """Dilated 2-D convolutions at full resolution, as in context networks for segmentation."""
    keras, layers = _keras()
    x = images = keras.Input((96, 96, 3))
    for dilation in (1, 2, 4, 8):
        x = layers.Conv2D(32, 3, padding="same", dilation_rate=dilation, activation="relu")(x)
    x = layers.SeparableConv2D(32, 3, padding="same", dilation_rate=2)(x)
    x = layers.DepthwiseConv2D(3, padding="same", dilation_rate=3)(x)
    return keras.Model(images, layers.Conv2D(CLASSES, 1, activation="softmax")(x))


def dilated_valid() -> Any:
    """Dilated convolutions without padding, and sizes that no power of two divides."""
    keras, layers = _keras()
    x = images = keras.Input((101, 77, 3))
    for dilation in (2, 3, 5):
        x = layers.Conv2D(24, 3, dilation_rate=dilation, activation="relu")(x)
        x = layers.BatchNormalization()(x)
    return keras.Model(images, layers.Dense(CLASSES, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


def transposed_autoencoder() -> Any:
    """Strided convolutions down, transposed ones up."""
    keras, layers = _keras()
    x = images = keras.Input((64, 64, 3))
    for filters in (32, 64, 128):
        x = layers.Conv2D(filters, 3, strides=2, padding="same")(x)
        x = layers.LeakyReLU(0.2)(x)
    for filters in (64, 32, 16):
        x = layers.Conv2DTranspose(filters, 3, strides=2, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.PReLU(shared_axes=[1, 2])(x)
    return keras.Model(images, layers.Conv2D(3, 3, padding="same", activation="sigmoid")(x))


def transposed_unet() -> Any:
    """A U-Net with transposed convolutions, dropout and skips."""
    keras, layers = _keras()
    x = images = keras.Input((128, 128, 1))
    skips = []
    for filters in (16, 32, 64):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        skips.append(x)
        x = layers.Dropout(0.1)(layers.MaxPooling2D()(x))
    for filters, skip in zip((64, 32, 16), reversed(skips), strict=True):
        x = layers.Conv2DTranspose(filters, 2, strides=2, padding="same")(x)
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(layers.Concatenate()([x, skip]))
    return keras.Model(images, layers.Conv2D(1, 1, activation="sigmoid")(x))


def transposed_1d() -> Any:
    """A generator of signals by transposed 1-D convolutions."""
    keras, layers = _keras()
    x = noise = keras.Input((64,))
    x = layers.Reshape((64, 64))(layers.Dense(4096)(x))
    for filters in (64, 32, 16):
        x = layers.Conv1DTranspose(filters, 8, strides=4, padding="same", activation="relu")(x)
    return keras.Model(noise, layers.Conv1D(1, 1, activation="tanh")(x))


def resizing_super_resolution() -> Any:
    """Sub-pixel convolution by reshape and transpose, and bilinear resizing beside it."""
    keras, layers = _keras()
    images = keras.Input((48, 48, 3))
    x = layers.Conv2D(64, 5, padding="same", activation="relu")(images)
    x = layers.Conv2D(48, 3, padding="same")(x)
    x = layers.Reshape((48, 48, 4, 4, 3))(x)
    x = layers.Reshape((192, 192, 3))(layers.Permute((1, 3, 2, 4, 5))(x))
    coarse = layers.Resizing(192, 192, interpolation="bilinear")(images)
    return keras.Model(images, layers.Add()([x, coarse]))


def resizing_pyramid() -> Any:
    """Nearest and bilinear up-sampling of several levels, joined, and a resize to an odd size between layers."""
    keras, layers = _keras()
    x = images = keras.Input((96, 96, 3))
    levels = []
    for filters in (16, 32, 64):
        x = layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(x)
        levels.append(layers.Conv2D(32, 1)(x))
    joined = levels[-1]
    for level in reversed(levels[:-1]):
        joined = layers.Add()([layers.UpSampling2D(2, interpolation="nearest")(joined), level])
    odd = keras.ops.image.resize(joined, (31, 45), interpolation="bilinear")
    x = layers.UpSampling2D(2, interpolation="bilinear")(odd)
    return keras.Model(images, layers.Conv2D(CLASSES, 3, padding="same", activation="softmax")(x))


def pooling_of_each_kind() -> Any:
    """Max, average, adaptive and global pooling side by side, padded and strided in odd ways."""
    keras, layers = _keras()
    images = keras.Input((75, 75, 3))
    x = layers.Conv2D(32, 3, padding="same", activation="relu")(images)
    branches = [
        layers.MaxPooling2D(3, strides=2, padding="same")(x),
        layers.AveragePooling2D(3, strides=2, padding="same")(x),
        layers.Conv2D(16, 3, strides=2, padding="same")(x),
    ]
    x = layers.Concatenate()(branches)
    x = layers.Conv2D(64, (1, 7), padding="same", groups=4)(x)
    x = layers.Conv2D(64, (7, 1), padding="same", activation="relu")(x)
    both = [layers.GlobalAveragePooling2D()(x), layers.GlobalMaxPooling2D()(x)]
    return keras.Model(images, layers.Dense(CLASSES, activation="softmax")(layers.Concatenate()(both)))


def grouped_shuffle() -> Any:
    """Grouped convolutions with channels shuffled by reshape and transpose between them."""
    keras, layers = _keras()
    x = images = keras.Input((64, 64, 3))
    x = layers.Conv2D(48, 3, strides=2, padding="same")(x)
    for _ in range(3):
        y = layers.Conv2D(48, 1, groups=3)(x)
        height, width = y.shape[1:3]
        y = keras.ops.reshape(y, (-1, height, width, 3, 16))
        y = keras.ops.reshape(keras.ops.transpose(y, (0, 1, 2, 4, 3)), (-1, height, width, 48))
        y = layers.BatchNormalization()(layers.DepthwiseConv2D(3, padding="same")(y))
        x = layers.ReLU()(layers.Add()([x, layers.Conv2D(48, 1, groups=3)(y)]))
    return keras.Model(images, layers.Dense(CLASSES, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


def lstm_masked() -> Any:
    """Words with a mask through a bidirectional LSTM that returns sequences, then a GRU."""
    keras, layers = _keras()
    words = keras.Input((64,), dtype="int32")
    x = layers.Embedding(2000, 64, mask_zero=True)(words)
    x = layers.Bidirectional(layers.LSTM(64, return_sequences=True))(x)
    x = layers.GRU(64)(x)
    return keras.Model(words, layers.Dense(CLASSES, activation="softmax")(x))


def gru_unmasked() -> Any:
    """Two GRUs over numbers, without a mask."""
    keras, layers = _keras()
    series = keras.Input((48, 16))
    x = layers.GRU(96, return_sequences=True)(series)
    x = layers.GRU(96, return_sequences=True, reset_after=False)(x)
    return keras.Model(series, layers.TimeDistributed(layers.Dense(1))(x))


def simple_rnn_recurrent_dropout() -> Any:
    """A plain RNN and an LSTM with recurrent dropout, which no fused kernel has."""
    keras, layers = _keras()
    series = keras.Input((32, 8))
    x = layers.SimpleRNN(64, return_sequences=True)(series)
    x = layers.LSTM(64, recurrent_dropout=0.1)(x)
    return keras.Model(series, layers.Dense(1)(x))


def rnn_stacked_cells() -> Any:
    """Stacked cells in one RNN layer, unrolled."""
    keras, layers = _keras()
    series = keras.Input((12, 32))
    x = layers.RNN([layers.LSTMCell(64), layers.GRUCell(64)], unroll=True)(series)
    return keras.Model(series, layers.Dense(1)(x))


def convlstm_frames() -> Any:
    """Frames through ConvLSTM2D, to the next frame."""
    keras, layers = _keras()
    frames = keras.Input((8, 40, 40, 1))
    x = layers.ConvLSTM2D(16, 3, padding="same", return_sequences=True)(frames)
    x = layers.BatchNormalization()(x)
    x = layers.ConvLSTM2D(16, 3, padding="same")(x)
    return keras.Model(frames, layers.Conv2D(1, 3, padding="same", activation="sigmoid")(x))


def time_distributed_cnn() -> Any:
    """A small CNN over each frame, then an LSTM."""
    keras, layers = _keras()
    cnn = keras.Sequential(
        [
            keras.Input((48, 48, 3)),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
        ]
    )
    frames = keras.Input((10, 48, 48, 3))
    x = layers.LSTM(32)(layers.TimeDistributed(cnn)(frames))
    return keras.Model(frames, layers.Dense(CLASSES, activation="softmax")(x))
