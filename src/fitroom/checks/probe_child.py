"""The child process of the probe: `python -m fitroom.checks.probe_child BACKEND ANSWER_FILE`.

Keras's own operations are used, so that the work goes where Keras's layers would go.
"""

import ctypes
import glob
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SECONDS_A_WORK = 0.3
_SIZE, _SIZE_ON_CPU = 4096, 256
_CHANNELS, _PIXELS, _SAMPLES = 128, 56, 64
_OPENED_BY_TENSORFLOW = (
    "libcudart.so.12",
    "libcublas.so.12",
    "libcublasLt.so.12",
    "libcufft.so.11",
    "libcusolver.so.11",
    "libcusparse.so.12",
    "libcudnn.so.9",
)
"""What TensorFlow on CUDA 12 opens before it shows a card; it does not say which of them it missed."""


def main() -> None:
    """Probe a backend and write what was found as JSON."""
    backend, answer = sys.argv[1], Path(sys.argv[2])
    found: dict[str, Any] = {}
    try:
        _probe(backend, found)
    except BaseException as error:
        said = next(iter(str(error).strip().splitlines()), "")
        found["error"] = f"{type(error).__name__}: {said[:300]}"
    part = answer.with_suffix(".part")
    part.write_text(json.dumps(found))
    part.rename(answer)


def _probe(backend: str, found: dict[str, Any]) -> None:
    held_before = _held_bytes()
    import keras

    from fitroom.backends.choose import load_backend

    loaded = load_backend(backend)
    devices = loaded.devices()
    found["devices"] = [vars(device) for device in devices]
    framework = sys.modules[backend]
    found["versions"] = {"keras": keras.__version__, backend: str(framework.__version__)}
    on_cpu = devices[0].kind == "cpu"
    if on_cpu and backend == "tensorflow":
        found["missing_libraries"] = _missing_libraries()
    began = time.monotonic()
    size = _SIZE_ON_CPU if on_cpu else _SIZE
    samples, channels, pixels = (1, 16, 28) if on_cpu else (_SAMPLES, _CHANNELS, _PIXELS)
    ops = keras.ops
    matrix = ops.ones((size, size), "float32")
    found["product"] = _time(lambda: ops.matmul(matrix, matrix), 2 * size**3)
    images = ops.ones((samples, pixels, pixels, channels), "float32")
    kernel = ops.ones((3, 3, channels, channels), "float32")
    found["convolution"] = _time(
        lambda: ops.conv(images, kernel, padding="same", data_format="channels_last"),
        2 * samples * pixels**2 * 9 * channels**2,
    )
    found["seconds"] = time.monotonic() - began
    found["memory"] = {
        name: value for name, value in vars(loaded.read_memory(devices[0])).items() if name != "peak_bytes"
    }
    held = _held_bytes()
    found["driver_bytes"] = None if held is None or held_before is None else max(0, held - held_before)


def _held_bytes() -> int | None:
    """What the driver counts on the first card, of all processes: from a container it does not tell them apart."""
    from fitroom.cards.nvml import read_usage

    usages = read_usage()
    return usages[0].used_bytes if usages else None


def _time(work: Callable[[], Any], flops: int) -> dict[str, Any]:
    """Run a computation until its time is over, after once for compiling, and return its rate and its device."""
    from keras import ops

    def wait(result: Any) -> None:
        ops.convert_to_numpy(result[(0,) * len(result.shape)])

    wait(work())
    wait(work())
    began, times = time.monotonic(), 0
    while True:
        # Several without waiting between them, since reading the result back costs more than a small product.
        for _ in range(4):
            result = work()
        wait(result)
        times += 4
        seconds = time.monotonic() - began
        if seconds > _SECONDS_A_WORK:
            break
    device = str(result.device)
    return {
        "device": device,
        "on_device": "cpu" not in device.lower(),
        "flops_per_second": times * flops / seconds,
    }


def _missing_libraries() -> list[str]:
    folders = [folder for path in sys.path for folder in glob.glob(f"{path}/nvidia/*/lib")]
    return [name for name in _OPENED_BY_TENSORFLOW if not _can_open(name, folders)]


def _can_open(name: str, folders: list[str]) -> bool:
    if any(os.path.exists(f"{folder}/{name}") for folder in folders):
        return True
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
