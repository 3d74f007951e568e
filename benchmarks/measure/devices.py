"""Training on several devices: its cost on CPU devices, estimates for several cards, real out-of-memory on one of two.

    python benchmarks/measure/devices.py overhead --backend jax        # fitroom over the engine used by hand, on CPUs
    python benchmarks/measure/devices.py estimates                     # JAX: Xception per card for 1, 2, 4, 8 cards
    python benchmarks/measure/devices.py out-of-memory --backend torch --out FOLDER     # on a card: one of two runs out

Each prints JSON lines; with `--out` they are added to FOLDER/devices.jsonl. `out-of-memory` makes two devices of one
card: two logical GPUs of TensorFlow with different limits, two Gloo processes of PyTorch with different fractions. A
training that takes longer than `--seconds` is ended with all its processes.
"""

import argparse
import faulthandler
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

DEVICES, BATCH, STEPS = 2, 256, 30
SMALL_MIB, LARGE_MIB = 2000, 12000
"""Of the two devices of one card: a share of 256 images takes some 3 GiB."""


def main():
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["overhead", "estimates", "out-of-memory", "child"])
    parser.add_argument("--backend", default="jax", choices=["jax", "tensorflow", "torch"])
    parser.add_argument("--way", default="fitroom", choices=["fitroom", "by hand", "out of memory"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=300, help="the longest that one training may take")
    options = parser.parse_args()
    if options.what == "child":
        faulthandler.dump_traceback_later(options.seconds * 0.8)  # shows where a training hangs
        found = CHILDREN[options.way](options.backend)
        if os.environ.get("RANK", "0") == "0":
            print(json.dumps(found), flush=True)
        return
    for line in RUNS[options.what](options):
        text = json.dumps(line | {"machine": platform.machine(), "date": time.strftime("%Y-%m-%d")})
        print(text, flush=True)
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            with (options.out / "devices.jsonl").open("a") as file:
                file.write(text + "\n")


def run_overhead(options):
    """Seconds a step by fitroom and by hand, in turns, each in fresh processes.

    On a machine that others use, the seconds of the CPU say more than those of the clock.
    """
    found: dict[str, list[dict[str, float]]] = {"fitroom": [], "by hand": []}
    for _ in range(3):
        for way, each in found.items():
            each.append(_child(options, way))
    best = {way: min(one["seconds_per_step"] for one in each) for way, each in found.items()}
    cpu = {way: min(one["cpu_seconds_per_step"] for one in each) for way, each in found.items()}
    yield {
        "what": "overhead",
        "backend": options.backend,
        "devices": DEVICES,
        "batch_size": BATCH,
        "fitroom_seconds": best["fitroom"],
        "by_hand_seconds": best["by hand"],
        "ratio": round(best["fitroom"] / best["by hand"], 3),
        "fitroom_cpu_seconds": cpu["fitroom"],
        "by_hand_cpu_seconds": cpu["by hand"],
        "cpu_ratio": round(cpu["fitroom"] / cpu["by hand"], 3),
    }


def run_estimates(options):
    """What each of several RTX 3090 holds of Xception with 32 samples each, by XLA's compiler for so many cards."""
    for devices in (1, 2, 4, 8):
        command = [sys.executable, "-m", "fitroom", "estimate", "xception", "--backend", "jax", "--gpu", "RTX 3090"]
        command += ["--batch-size", str(32 * devices), "--devices", str(devices), "--json"]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        sizes = ("peak_bytes", "required_bytes", "device_bytes")
        yield {
            "what": "estimate",
            "devices": devices,
            "batch_size": 32 * devices,
            **{name: found[name] for name in sizes},
        }


def run_out_of_memory(options):
    """A training in which the smaller of two devices of one card runs out of memory."""
    yield {"what": "out of memory on one of two", "backend": options.backend} | _child(options, "out of memory")


RUNS = {"overhead": run_overhead, "estimates": run_estimates, "out-of-memory": run_out_of_memory}


def _child(options, way):
    command = [sys.executable]
    if options.backend == "torch":
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={DEVICES}"]
    command += [__file__, "child", "--backend", options.backend, "--way", way, "--seconds", str(options.seconds)]
    settings = {"KERAS_BACKEND": options.backend, "TF_CPP_MIN_LOG_LEVEL": "3", "FITROOM_VOTE_SECONDS": "120"}
    if way != "out of memory":
        settings |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
        settings |= {"XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}"}
    process = subprocess.Popen(
        command,
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # to end what hangs
    )
    try:
        out, errors = process.communicate(timeout=options.seconds)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun ends its processes then
        try:
            _, errors = process.communicate(timeout=45)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            errors = "it did not end when it was told to"
        sys.exit(f"{way} on {options.backend} took longer than {options.seconds:.0f} s:\n{errors[-8000:]}")
    if process.returncode:
        sys.exit(f"{way} on {options.backend} failed:\n{errors[-4000:]}")
    return json.loads([line for line in out.splitlines() if line.startswith("{")][-1])


def _make_model(units=1024, inputs=256):
    import keras

    keras.utils.set_random_seed(0)
    layers = [keras.Input((inputs,))] + [keras.layers.Dense(units, activation="relu") for _ in range(3)]
    model = keras.Sequential([*layers, keras.layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile="auto")
    return model


def _data(samples, inputs=256):
    import numpy as np

    random = np.random.default_rng(0)
    return random.normal(size=(samples, inputs)).astype("float32"), random.integers(0, 10, samples)


def _timed(train):
    """Seconds a step of a training of STEPS batches, the first call left out; of the CPU: those of this process."""
    train()
    started, cpu_started = time.perf_counter(), time.process_time()
    train()
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    return {"seconds_per_step": round(seconds / STEPS, 6), "cpu_seconds_per_step": round(cpu_seconds / STEPS, 6)}


def by_fitroom(backend):
    """The training by fitroom."""
    _logical_cpus(backend)
    import fitroom

    model, (x, y) = _make_model(), _data(BATCH * STEPS)
    with fitroom.devices("all" if backend == "torch" else DEVICES):
        return _timed(lambda: fitroom.fit(model, x, y, batch_size=BATCH, verbose=0, shuffle=False))


def by_hand(backend):
    """The same training by the engine alone: Keras's own `fit` under it, or PyTorch's usual loop."""
    _logical_cpus(backend)
    import keras

    x, y = _data(BATCH * STEPS)
    if backend == "torch":
        return _timed(_ddp_loop(x, y))
    if backend == "jax":
        keras.distribution.set_distribution(keras.distribution.DataParallel())
        model = _make_model()
    else:
        import tensorflow as tf

        with tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(DEVICES)]).scope():
            model = _make_model()
    return _timed(lambda: model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False))


def _ddp_loop(x, y):
    """Keras's model in DistributedDataParallel, with a loop as PyTorch's documentation has it."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = _make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    loss_of, rank, share = torch.nn.CrossEntropyLoss(), dist.get_rank(), BATCH // DEVICES

    def train():
        for step in range(STEPS):
            start = step * BATCH + rank * share
            inputs, targets = torch.from_numpy(x[start : start + share]), torch.from_numpy(y[start : start + share])
            optimizer.zero_grad()
            loss = loss_of(wrapped(inputs), targets)
            loss.backward()
            optimizer.step()
            loss.item()

    return train


def out_of_memory(backend):
    """Real: the second device has less memory than its share takes."""
    _limit_devices(backend)
    import keras
    import numpy as np

    import fitroom

    keras.utils.set_random_seed(0)
    inputs = keras.Input((224, 224, 3))
    x = inputs
    for filters in (64, 128, 256):
        x = keras.layers.Conv2D(filters, 3, strides=2, activation="relu", padding="same")(x)
    outputs = keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(x))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    images = np.random.default_rng(0).normal(size=(512, 224, 224, 3)).astype("float32")
    labels = np.random.default_rng(1).integers(0, 10, 512)
    started = time.perf_counter()
    with fitroom.devices("all"):
        history = fitroom.fit(model, images, labels, batch_size=512, epochs=3, verbose=0, shuffle=False)
    told = [event["message"] for event in history.fitroom["events"]]
    return {
        "limits_mib": [LARGE_MIB, SMALL_MIB],
        "seconds": round(time.perf_counter() - started, 1),
        "out_of_memory": history.fitroom["out_of_memory"],
        "micro_batch": history.fitroom["micro_batch"],
        "loss": [round(float(value), 6) for value in history.history["loss"]],
        "events": told,
    }


def _limit_devices(backend):
    """Make two devices of one card, the second with little memory."""
    if backend == "tensorflow":
        import tensorflow as tf

        limits = [tf.config.LogicalDeviceConfiguration(memory_limit=limit) for limit in (LARGE_MIB, SMALL_MIB)]
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("GPU")[0], limits)
    if backend == "torch":
        import torch

        limit = SMALL_MIB if os.environ["RANK"] == "1" else LARGE_MIB
        torch.cuda.set_per_process_memory_fraction(limit * 2**20 / torch.cuda.get_device_properties(0).total_memory)


def _logical_cpus(backend):
    if backend == "tensorflow":
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * DEVICES)


CHILDREN = {"fitroom": by_fitroom, "by hand": by_hand, "out of memory": out_of_memory}

if __name__ == "__main__":
    main()
