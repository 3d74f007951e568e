"""A child program: trains a small model on one device and on several of one engine, and prints how far they differ.

    python tests/helpers/several_devices.py FOLDER                      # TensorFlow, JAX: KERAS_BACKEND says which
    python -m torch.distributed.run --nproc-per-node=3 tests/helpers/several_devices.py FOLDER      # PyTorch

Its last line of stdout is JSON: for each case the largest difference of weights and logs, and what else it saw. The
devices are CPU devices of the real engines: TensorFlow's logical devices, JAX's forced host devices, Gloo processes.
"""

import json
import os
import sys
from pathlib import Path

BACKEND = os.environ["KERAS_BACKEND"]
if BACKEND == "tensorflow":
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)

import keras  # noqa: E402
import numpy as np  # noqa: E402

import fitroom  # noqa: E402
from fitroom.backends.choose import current_backend  # noqa: E402

SAMPLES, BATCH = 11, 11
"""A batch that divides by neither 2, 3 nor 4; three are in the strategy of one's own. One size: each is traced or
compiled anew."""

_random = np.random.default_rng(0)
X = _random.normal(size=(SAMPLES, 8)).astype("float32")
Y = _random.integers(0, 3, SAMPLES)
WEIGHTS = _random.uniform(0.2, 2, SAMPLES).astype("float32")
FOLDER = Path(sys.argv[1])


@keras.saving.register_keras_serializable()
class PlantedOutOfMemory(keras.layers.Layer):
    """Runs out of memory once, on the second device alone, with more than three samples. Planted, not real."""

    planted = 0
    lit = False

    def call(self, x, training=False):
        if BACKEND == "jax" or not training or not PlantedOutOfMemory.lit or (x.shape[0] or 0) <= 3:
            return x
        if BACKEND == "torch":
            import torch

            if torch.distributed.is_initialized() and torch.distributed.get_rank() == 1:
                PlantedOutOfMemory.lit, PlantedOutOfMemory.planted = False, PlantedOutOfMemory.planted + 1
                raise torch.OutOfMemoryError("CUDA out of memory. Planted.")
        if BACKEND == "tensorflow":
            context = tf.distribute.get_replica_context()
            if context is not None and tf.get_static_value(context.replica_id_in_sync_group) == 1:
                planted = tf.numpy_function(self._run_out, [x], tf.float32)
                planted.set_shape(x.shape)
                return planted
        return x

    @staticmethod
    def _run_out(x):
        if PlantedOutOfMemory.lit:
            PlantedOutOfMemory.lit, PlantedOutOfMemory.planted = False, PlantedOutOfMemory.planted + 1
            raise MemoryError("OOM when allocating. Planted.")
        return x


def make_model(kind="dense"):
    keras.utils.set_random_seed(1)
    x = inputs = keras.Input((8,))
    x = keras.layers.Dense(16, activation="relu")(x)
    if kind == "normalised":
        x = keras.layers.Dropout(0.3, seed=3)(keras.layers.BatchNormalization()(x))
    if kind == "planted":
        x = PlantedOutOfMemory()(x)
    x = keras.layers.Add()([x, keras.layers.Dense(16)(x)])
    model = keras.Model(inputs, keras.layers.Dense(3, activation="softmax", dtype="float32")(x))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def train(model, *, epochs=1, validates=False, **options):
    if validates:  # traced and compiled as training is
        options["validation_data"] = (X, Y)
    return fitroom.fit(
        model,
        X,
        Y,
        batch_size=BATCH,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        **options,
    )


def difference(one, other):
    """The largest difference of two trainings: of their weights, and of the logs that the second one has."""
    weights = max(float(np.abs(a - b).max()) for a, b in zip(one[1], other[1], strict=True))
    logs = max(abs(one[0].history[name][-1] - other[0].history[name][-1]) for name in other[0].history)
    return {"weights": weights, "logs": float(logs)}


def trained(kind="dense", **options):
    model = make_model(kind)
    history = train(model, **options)
    return history, model.get_weights()


def on_devices(devices, kind="dense", *, shares=None, **options):
    """The same training with a model that was made before the devices were chosen."""
    model = make_model(kind)
    with fitroom.devices(devices, shares=shares):
        history = train(model, **options)
    return history, model.get_weights()


def compare_with_one_device(found, number):
    plain, weighted = trained(validates=True), trained(sample_weight=WEIGHTS)
    numbers = (2, 4) if BACKEND != "torch" else (number,)
    for count in numbers:
        found[f"{count} devices"] = difference(plain, on_devices(count, validates=count == numbers[-1]))
    count = numbers[-1]
    recipe = fitroom.Recipe(remat="blocks", micro_batch=2)
    found["accumulated and recomputed"] = difference(weighted, on_devices(count, recipe=recipe, sample_weight=WEIGHTS))
    half = fitroom.Recipe(precision="mixed_bfloat16")
    found["mixed precision"] = difference(trained(recipe=half), on_devices(count, recipe=half))
    if BACKEND != "jax":
        shares = (1, 3, 2)[:count] if BACKEND == "torch" else (1, 3)
        found["unequal shares"] = difference(plain, on_devices(len(shares), shares=shares))
    history, _ = on_devices(count, "normalised")
    found["normalised"] = {"finite": bool(np.isfinite(history.history["loss"][-1]))}
    return plain


def agree_on_less(found, count):
    """Out of memory on one device, planted: all repeat the batch with a smaller micro-batch."""
    PlantedOutOfMemory.lit = False
    expected = trained("planted")
    PlantedOutOfMemory.lit = True
    if BACKEND == "jax":
        _plant_on_second_device()
    got = on_devices(count, "planted")
    found["planted"] = difference(expected, got) | {
        "out_of_memory": got[0].fitroom["out_of_memory"],
        "micro_batch": got[0].fitroom["micro_batch"],
    }


def _plant_on_second_device():
    """JAX compiles the model's program for all devices at once: what is planted is that one has no room for it."""
    from fitroom.backends.jax.train import room
    from fitroom.errors import NoRoomError

    check = room._check_device

    def check_planted(device, needed_bytes):
        if device.id == 1 and PlantedOutOfMemory.lit:
            PlantedOutOfMemory.lit = False
            raise NoRoomError("Out of memory. Planted.")
        check(device, needed_bytes)

    room._check_device = check_planted


def resume_with_fewer(found, plain, count):
    """A run that was stopped on several devices is resumed with another number of them."""
    whole = trained(epochs=2)
    folder = FOLDER / "resumed"
    on_devices(count, epochs=1, run_dir=folder)
    found["resumed"] = difference(whole, on_devices(2, epochs=2, run_dir=folder))
    found["resumed"]["model"] = (folder / "model.keras").is_file()


def serve_own(found, plain):
    """A model that was made under the user's own strategy or distribution."""
    if BACKEND == "jax":
        own = keras.distribution.DataParallel(devices=["cpu:0", "cpu:1", "cpu:2"])
        keras.distribution.set_distribution(own)
        found["own"] = difference(plain, trained(validates=True))
        mesh = keras.distribution.DeviceMesh((2, 2), ["data", "model"])
        layout = keras.distribution.LayoutMap(mesh)
        layout["dense.*kernel"] = ("model", None)
        keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="data"))
        found["own, sharded"] = difference(plain, trained(recipe=fitroom.Recipe(micro_batch=2)))
        keras.distribution.set_distribution(None)
        model = make_model()
        with fitroom.devices(4, shard_weights=True):
            history = train(model)
            shards = model.layers[1].kernel.value.sharding.is_fully_replicated
        found["sharded"] = difference(plain, (history, model.get_weights())) | {"is_replicated": shards}
        return
    with tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1", "CPU:2"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    ).scope():
        model = make_model()
    fitroom.protect()
    history = model.fit(X, Y, batch_size=BATCH, shuffle=False, verbose=0, validation_data=(X, Y))
    found["own"] = difference(plain, (history, model.get_weights())) | {"served": hasattr(history, "fitroom")}


def stop_in_one(found):
    """A callback that stops the training in one process alone, as one with a clock of its own may."""

    class StopInSecond(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = os.environ["RANK"] == "1"

    history, _ = on_devices("all", epochs=3, callbacks=[StopInSecond()])
    found["stopped"] = len(history.epoch)


def refuse(found):
    """What cannot work, with what is said."""
    tries = {
        "too many": lambda: on_devices(9),
        "small batch": lambda: _small_batch(),
        "nested": lambda: _nested(),
    }
    if BACKEND == "jax":
        tries["unequal"] = lambda: on_devices(2, shares=(1, 2))
    else:
        tries["sharded"] = lambda: fitroom.devices("all", shard_weights=True).__enter__()
    found["refused"] = {}
    for name, attempt in tries.items():
        try:
            attempt()
        except fitroom.FitroomError as error:
            found["refused"][name] = str(error)


def _small_batch():
    with fitroom.devices("all"):
        fitroom.fit(make_model(), X, Y, batch_size=1, verbose=0)


def _nested():
    with fitroom.devices("all"), fitroom.devices("all"):
        pass


def main():
    found = {}
    number = int(os.environ.get("WORLD_SIZE", "4"))
    plain = compare_with_one_device(found, number)
    agree_on_less(found, 2 if BACKEND != "torch" else number)
    if BACKEND != "torch":
        resume_with_fewer(found, plain, 4)
        serve_own(found, plain)
    else:
        stop_in_one(found)
    refuse(found)
    found["backend"] = current_backend().name
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
