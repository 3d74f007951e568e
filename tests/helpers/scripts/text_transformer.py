"""Text classification with a transformer block: token and position embeddings, attention that masks the padding."""

import json

import keras
import numpy as np
from keras import layers, ops

VOCABULARY, LENGTH, WIDTH = 500, 64, 64


class TransformerBlock(layers.Layer):
    def __init__(self, embed_dim, num_heads, ff_dim, rate=0.1):
        super().__init__()
        self.supports_masking = True
        self.attention = layers.MultiHeadAttention(num_heads=num_heads, key_dim=embed_dim)
        self.feed_forward = keras.Sequential([layers.Dense(ff_dim, activation="relu"), layers.Dense(embed_dim)])
        self.norm1 = layers.LayerNormalization(epsilon=1e-6)
        self.norm2 = layers.LayerNormalization(epsilon=1e-6)
        self.dropout1 = layers.Dropout(rate)
        self.dropout2 = layers.Dropout(rate)

    def call(self, inputs, training=None, mask=None):
        attended = self.attention(inputs, inputs, query_mask=mask, value_mask=mask, key_mask=mask)
        attended = self.dropout1(attended, training=training)
        out = self.norm1(inputs + attended)
        forwarded = self.dropout2(self.feed_forward(out), training=training)
        return self.norm2(out + forwarded)


class TokenAndPositionEmbedding(layers.Layer):
    def __init__(self, maxlen, vocab_size, embed_dim):
        super().__init__()
        self.tokens = layers.Embedding(vocab_size, embed_dim, mask_zero=True)
        self.positions = layers.Embedding(maxlen, embed_dim)

    def compute_mask(self, inputs, mask=None):
        return self.tokens.compute_mask(inputs)

    def call(self, x):
        positions = ops.arange(0, ops.shape(x)[-1], 1)
        return self.tokens(x) + self.positions(positions)


keras.utils.set_random_seed(0)
lengths = np.random.randint(10, LENGTH, 256)
y = np.random.randint(0, 2, 256)
sequences = [np.random.randint(1, VOCABULARY // 2, n) + label * 100 for n, label in zip(lengths, y, strict=True)]
x = keras.utils.pad_sequences(sequences, maxlen=LENGTH)

inputs = keras.Input((LENGTH,), dtype="int32")
features = TokenAndPositionEmbedding(LENGTH, VOCABULARY, WIDTH)(inputs)
features = TransformerBlock(WIDTH, num_heads=2, ff_dim=32)(features)
features = layers.GlobalAveragePooling1D()(features)
features = layers.Dropout(0.1)(features)
features = layers.Dense(20, activation="relu")(features)
outputs = layers.Dense(2, activation="softmax")(features)
model = keras.Model(inputs, outputs)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(
    x[:192], y[:192], batch_size=96, epochs=3, validation_data=(x[192:], y[192:]), shuffle=False, verbose=2
)
print(json.dumps(history.history))
