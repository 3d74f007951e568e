"""Structured data: inputs by name, two outputs with loss weights and sample weights; then one with class weights."""

import json

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(0)
NUM_SAMPLES, NUM_WORDS, NUM_DEPARTMENTS = 256, 300, 4
age = np.random.normal(40, 12, (NUM_SAMPLES, 1)).astype("float32")
thal = np.random.randint(0, 3, (NUM_SAMPLES, 1))
words = np.random.randint(1, NUM_WORDS, (NUM_SAMPLES, 120))
priority = (age > 45).astype("float32")
department = (thal[:, 0] + words[:, 0]) % NUM_DEPARTMENTS

age_input = keras.Input((1,), name="age")
thal_input = keras.Input((1,), name="thal", dtype="int64")
words_input = keras.Input((120,), name="words", dtype="int64")
normalization = layers.Normalization()
normalization.adapt(age)
thal_features = layers.CategoryEncoding(num_tokens=3, output_mode="one_hot")(thal_input)
words_features = layers.Embedding(NUM_WORDS, 128)(words_input)
words_features = layers.Dense(128, activation="relu")(words_features)
words_features = layers.GlobalMaxPooling1D()(words_features)
features = layers.concatenate([normalization(age_input), thal_features, words_features])
features = layers.Dropout(0.2)(layers.Dense(32, activation="relu")(features))
priority_output = layers.Dense(1, name="priority", activation="sigmoid")(features)
department_output = layers.Dense(NUM_DEPARTMENTS, name="department")(features)
inputs = {"age": age_input, "thal": thal_input, "words": words_input}

model = keras.Model(inputs, {"priority": priority_output, "department": department_output})
model.compile(
    optimizer=keras.optimizers.RMSprop(1e-3),
    loss={
        "priority": keras.losses.BinaryCrossentropy(),
        "department": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    },
    loss_weights={"priority": 1.0, "department": 0.2},
    metrics={"department": ["accuracy"]},
)
data = {"age": age, "thal": thal, "words": words}
weights = {
    "priority": np.where(age[:, 0] > 60, 2.0, 1.0).astype("float32"),
    "department": np.linspace(0.5, 1.5, NUM_SAMPLES, dtype="float32"),
}
history = model.fit(
    data,
    {"priority": priority, "department": department},
    sample_weight=weights,
    epochs=3,
    batch_size=128,
    shuffle=False,
    verbose=2,
)

single = keras.Model(inputs, priority_output)
single.compile("adam", "binary_crossentropy", weighted_metrics=["accuracy"])
weighed = single.fit(data, priority, class_weight={0: 0.7, 1: 1.6}, epochs=2, batch_size=100, shuffle=False, verbose=2)
print(json.dumps(history.history | {"single": weighed.history["loss"], "accuracy": weighed.history["accuracy"]}))
