"""Distillation: a small student learns from a large teacher, in a `compute_loss` of its own."""

import json

import keras
import numpy as np
from keras import layers, ops


class Distiller(keras.Model):
    def __init__(self, student, teacher):
        super().__init__()
        self.teacher = teacher
        self.student = student

    def compile(self, optimizer, metrics, student_loss_fn, distillation_loss_fn, alpha=0.1, temperature=3):
        super().compile(optimizer=optimizer, metrics=metrics)
        self.student_loss_fn = student_loss_fn
        self.distillation_loss_fn = distillation_loss_fn
        self.alpha = alpha
        self.temperature = temperature

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, allow_empty=False):
        teacher_predictions = self.teacher(x, training=False)
        student_loss = self.student_loss_fn(y, y_pred)
        distillation_loss = self.distillation_loss_fn(
            ops.softmax(teacher_predictions / self.temperature, axis=1),
            ops.softmax(y_pred / self.temperature, axis=1),
        ) * (self.temperature**2)
        return self.alpha * student_loss + (1 - self.alpha) * distillation_loss

    def call(self, x):
        return self.student(x)


def classifier(filters, name):
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(filters, 3, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(2 * filters, 3, strides=1, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Flatten(),
            layers.Dense(10),
        ],
        name=name,
    )


keras.utils.set_random_seed(0)
y = np.random.randint(0, 10, 256)
x = np.random.random((256, 28, 28, 1)).astype("float32") / 2
for image, label in zip(x, y, strict=True):
    image[2 * label : 2 * label + 5, 4:24] += 0.5

teacher = classifier(16, "teacher")
teacher.compile(
    optimizer=keras.optimizers.Adam(),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
)
taught = teacher.fit(x, y, batch_size=64, epochs=2, shuffle=False, verbose=2)

distiller = Distiller(student=classifier(8, "student"), teacher=teacher)
distiller.compile(
    optimizer=keras.optimizers.Adam(),
    metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    student_loss_fn=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    distillation_loss_fn=keras.losses.KLDivergence(),
    alpha=0.1,
    temperature=10,
)
distilled = distiller.fit(x, y, batch_size=256, epochs=2, shuffle=False, verbose=2)
print(json.dumps({"teacher": taught.history["loss"]} | distilled.history))
