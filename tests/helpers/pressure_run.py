"""Training on TensorFlow whose CPU allocator is limited: real out-of-memory. One way of it a process.

    python pressure_run.py too_large | jitted | tightens | validation | outside | sub_pixel | weights
                           stress SEED EPOCHS
                           planned RUN_DIR | killed RUN_DIR

Prints RESULT and what came of it: every sample is counted by a metric that is part of the transaction, so a sample
that was lost or seen twice shows in its sums.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

import fitroom
from fitroom.backends.tensorflow.train.programs import Program
from fitroom.planning.identity import model_digest
from fitroom.train.transaction import Transaction
from sample_plans import sample_plan

SIDE, FILTERS, SAMPLES = 32, 32, 720
MIB = 2**20


class Seen(keras.metrics.Metric):
    """The sum of a number that each picture carries in its first pixel, and how many there were."""

    def __init__(self, name="seen"):
        super().__init__(name=name)
        self.total = self.add_weight(shape=(2,), initializer="zeros", name="total", dtype="float32")

    def update_state(self, y_true, y_pred, sample_weight=None):
        numbers = ops.cast(ops.reshape(y_pred, (-1, 6))[:, 5], "float32")
        self.total.assign_add(ops.stack([ops.sum(numbers), ops.cast(ops.shape(numbers)[0], "float32")]))

    def result(self):
        return {"seen_sum": self.total[0], "seen_count": self.total[1]}


def sum_of_classes(y_true, y_pred):
    return keras.losses.sparse_categorical_crossentropy(y_true, y_pred[:, :5], from_logits=True)


def convolution():
    """Of single pixels: the memory is in what it makes of them, the time would be in their neighbours."""
    return layers.Conv2D(FILTERS, 1, activation="relu")


def net(num_layers=2, layer=convolution):
    """No BatchNormalization and no dropout, so that the size of the parts changes nothing but rounding."""
    keras.utils.set_random_seed(3)
    pictures = keras.Input((SIDE, SIDE, 3))
    number = layers.Lambda(lambda x: ops.stop_gradient(x[:, 0, 0, :1]), output_shape=(1,))(pictures)
    features = pictures
    for _ in range(num_layers):
        features = layer()(features)
    classes = layers.Dense(5)(layers.GlobalAveragePooling2D()(features))
    model = keras.Model(pictures, layers.Concatenate()([classes, number]))
    model.compile(keras.optimizers.Adam(1e-3), sum_of_classes, metrics=[Seen()])
    return model


def data(number=SAMPLES, seed=0):
    random = np.random.default_rng(seed)
    x = random.random((number, SIDE, SIDE, 3)).astype("float32")
    x[:, 0, 0, 0] = np.arange(number) % 64
    return x, random.integers(0, 5, number).astype("int32")


class Ballast(keras.callbacks.Callback):
    """Takes memory before some batches and gives it back before others, by a plan of MiB for each batch."""

    def __init__(self, plan):
        super().__init__()
        self.plan, self.held, self.count = plan, None, 0

    def on_train_batch_begin(self, batch, logs=None):
        wanted = self.plan(self.count)
        self.count += 1
        if wanted is None:
            return
        # In pieces, as the allocator's free memory is: one large piece may not be there.
        self.held = None
        self.held = [tf.zeros((4 * MIB // 4,)) for _ in range(wanted // 4)]


def report(model, history, **more):
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(v.numpy()).tobytes() for v in model.trainable_variables))
    known = history.fitroom
    print(
        "RESULT",
        json.dumps(
            {
                "weights": digest.hexdigest(),
                "updates": int(model.optimizer.iterations),
                "micro_batch": known["micro_batch"],
                "validation_micro_batch": known["validation_micro_batch"],
                "out_of_memory": known["out_of_memory"],
                "during": [event["during"] for event in known["events"] if event["kind"] == "out of memory"],
                "seen_sum": [float(value) for value in history.history["seen_sum"]],
                "seen_count": [float(value) for value in history.history["seen_count"]],
                **more,
            }
        ),
        flush=True,
    )


def too_large(micro_batch=None):
    """One batch of all samples, whole; the second argument cuts it from the start instead."""
    model = net()
    recipe = fitroom.Recipe(micro_batch=int(micro_batch)) if micro_batch else None
    options = {"batch_size": SAMPLES, "epochs": 2, "shuffle": False, "verbose": 0}
    report(model, fitroom.fit(model, *data(), **options, recipe=recipe))


def jitted():
    """One batch of all samples in a jitted step; which programs ran out of memory is written down."""
    failed = []
    run = Program.__call__

    def watched(self, *arguments):
        try:
            return run(self, *arguments)
        except tf.errors.ResourceExhaustedError:
            failed.append("jitted" if self.is_jitted else "graph")
            raise

    Program.__call__ = watched
    model = net()
    options = {"batch_size": SAMPLES, "epochs": 2, "shuffle": False, "verbose": 0}
    history = fitroom.fit(model, *data(), **options, recipe=fitroom.Recipe(jit=True))
    report(model, history, failed=failed)


def tightens():
    """The memory shrinks in the middle of a run and comes back."""
    model = net()
    ballast = Ballast({2: 180, 5: 0}.get)
    history = fitroom.fit(model, *data(), batch_size=240, epochs=3, verbose=0, callbacks=[ballast])
    report(model, history)


def validation():
    """Training fits, validation does not."""
    model = net()
    xv, yv = data(1600, seed=2)
    history = fitroom.fit(
        model, *data(), batch_size=60, epochs=1, verbose=0, validation_data=(xv, yv), validation_batch_size=1600
    )
    report(model, history, val_seen_count=history.history["val_seen_count"])


def outside():
    """Training fits; `evaluate`, `predict` and `test_on_batch` beside it do not."""
    fitroom.protect()
    model = net()
    x, y = data(1600, seed=2)
    evaluated = model.evaluate(x, y, batch_size=1600, verbose=0, return_dict=True)
    tested = model.test_on_batch(x, y, return_dict=True)
    predicted = model.predict(x, batch_size=1600, verbose=0)
    few = model.predict(x[:8], batch_size=8, verbose=0)
    history = model.fit(*data(), batch_size=60, epochs=1, verbose=0)
    counts = [evaluated["seen_count"], tested["seen_count"], len(predicted)]
    same = bool(np.allclose(predicted[:8], few, rtol=1e-5)) and bool((predicted[:, 5] == x[:, 0, 0, 0]).all())
    report(model, history, counts=counts, same=same)


def sub_pixel():
    """A super-resolution net, whose convolutions want single blocks of more than half of a limit of 70 MB."""
    side, scale = 80, 3
    keras.utils.set_random_seed(3)
    pictures = features = keras.Input((side, side, 1))
    for filters, size in ((64, 5), (64, 3), (32, 3), (scale**2, 3)):
        features = layers.Conv2D(filters, size, padding="same", activation="relu")(features)
    larger = layers.Lambda(lambda x: tf.nn.depth_to_space(x, scale), output_shape=(side * scale, side * scale, 1))
    model = keras.Model(pictures, larger(features))
    model.compile("adam", "mse")
    random = np.random.default_rng(0)
    x = random.random((16, side, side, 1), "float32")
    y = random.random((16, side * scale, side * scale, 1), "float32")
    history = fitroom.fit(model, x, y, batch_size=8, verbose=0)
    known = {name: history.fitroom[name] for name in ("micro_batch", "out_of_memory")}
    print("RESULT", json.dumps(known | {"updates": int(model.optimizer.iterations)}), flush=True)


def weights():
    """Weights for which there is no room, then a model that fits, by Keras itself."""
    model = keras.Sequential([layers.Dense(5), layers.Dense(80 * MIB // 20), layers.Dense(5)])
    model.compile("sgd", "mse")
    x, y = np.ones((4, 3), "float32"), np.ones((4, 5), "float32")
    try:
        fitroom.fit(model, x, y, verbose=0)
    except fitroom.OutOfMemoryError as error:
        said, explained = str(error), fitroom.explain(error).to_dict()
    built = [layer.name for layer in model._flatten_layers() if layer.built and layer is not model]
    other = keras.Sequential([layers.Dense(5)])
    other.compile("sgd", "mse")
    other.fit(x, y, verbose=0)
    found = {
        "said": said,
        "explained": explained,
        "built": built,
        "variables": len(model.variables),
        "updates": int(other.optimizer.iterations),
    }
    print("RESULT", json.dumps(found), flush=True)


def stress(seed, epochs):
    """Memory that comes and goes at random, with several out-of-memory errors in every epoch."""
    random = np.random.default_rng(int(seed))
    model = net()

    def plan(count):
        # The size that was found is forgotten now and then, so that it has to be found again.
        if random.random() < 0.7:
            transactions[0].training.current = None
        return int(random.choice([0, 180, 200])) if random.random() < 0.7 else None

    transactions = []
    made = Transaction.__init__
    Transaction.__init__ = lambda self, *arguments, **options: (
        transactions.append(self),
        made(self, *arguments, **options),
    )[1]
    history = fitroom.fit(model, *data(), batch_size=240, epochs=int(epochs), verbose=0, callbacks=[Ballast(plan)])
    report(model, history)


def planned(run_dir, *callbacks):
    """A plan for more memory than there is: whole batches fit when blocks are recomputed, and then not even so."""
    # Layers that keep much and need nothing beside it: a convolution's scratch would be most of the memory.
    model = net(num_layers=24, layer=lambda: layers.Dense(FILTERS, activation="tanh"))
    plan = sample_plan(
        recipe=fitroom.Recipe(),
        batch_size=120,
        micro_batch=120,
        fallbacks=(fitroom.Recipe(remat="blocks"), fitroom.Recipe(remat="blocks", micro_batch=30)),
        backend="tensorflow",
        model=model.name,
        model_digest=model_digest(model),
    )
    history = fitroom.fit(
        model,
        *data(),
        batch_size=120,
        verbose=0,
        seed=4,
        callbacks=[Ballast({2: 120, 3: 0}.get), *callbacks],
        plan=plan,
        run_dir=run_dir,
        checkpoint_batches=1,
    )
    ran_out = [event for event in history.fitroom["events"] if event["kind"] == "out of memory"]
    said = [event["message"].partition("; ")[2] for event in ran_out]
    report(model, history, recipe=history.fitroom["recipe"], said=said)


def killed(run_dir):
    """The same, killed in the middle when both steps down were taken."""
    planned(run_dir, KilledAt(4, run_dir))


class KilledAt(keras.callbacks.Callback):
    """Ends the process before this batch as a power cut would, the checkpoints of all batches before it written."""

    def __init__(self, batch, run_dir):
        super().__init__()
        self.batch, self.folder = batch, Path(run_dir, "checkpoints")

    def on_train_batch_begin(self, batch, logs=None):
        # A checkpoint is left out while the one before it is still being written, as on a busy machine.
        deadline = time.monotonic() + 10
        while batch and not (self.folder / f"{batch:08}.npz").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.1)
        if batch == self.batch:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
