"""Out-of-memory errors provoked on a card in the three frameworks, and what `fitroom explain` makes of their logs.

    python benchmarks/measure/explain.py --backend torch --out FOLDER     # jax, tensorflow

Each case runs in a process of its own on a card that is limited, prints what a user would see, and is explained from
that log alone. FOLDER gets `explain.jsonl`, for results/explain.jsonl, and the logs, for tests/fixtures/crash_logs.
"""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import textwrap
from importlib import metadata
from pathlib import Path
from typing import Any

_NET = """
import numpy as np, keras
def net(size=192, width=64):
    layers = [keras.layers.Conv2D(width, 3, padding="same", activation="relu", name=f"conv{n}") for n in range(6)]
    head = [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(5, name="head")]
    model = keras.Sequential([keras.Input((size, size, 3)), *layers, *head])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
def data(count=512, size=192):
    return np.zeros((count, size, size, 3), "float32"), np.zeros((count,), "int32")
"""
_WIDE = """
import numpy as np, keras
layers = [keras.layers.Dense(12000, name=f"wide{n}") for n in range(5)]
model = keras.Sequential([keras.Input((12000,)), *layers, keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(np.zeros((8, 12000), "float32"), np.zeros((8, 1), "float32"), batch_size=8)
"""
_LIMITS = {
    "torch": "import torch; torch.cuda.set_per_process_memory_fraction({gib} / 139.8)\n",
    "jax": "",
    "tensorflow": (
        "import tensorflow as tf; gpu = tf.config.list_physical_devices('GPU')[0]\n"
        "limit = tf.config.LogicalDeviceConfiguration(memory_limit={mib})\n"
        "tf.config.set_logical_device_configuration(gpu, [limit])\n"
    ),
}
_FIT = _NET + "x, y = data()\nnet().fit(x, y, batch_size=512)\n"

CASES: dict[str, dict[str, tuple[float, str, list[str]]]] = {
    # name: gibibytes, program, the kinds that are right
    "torch": {
        "keras-fit": (8, _FIT, ["device_out_of_memory"]),
        "keras-fit-26": (26, _FIT, ["device_out_of_memory"]),
        "keras-optimizer": (8, _WIDE, ["device_out_of_memory"]),
        "keras-build": (1, _WIDE, ["device_out_of_memory"]),
        "request-larger-than-card": (139, "import torch\ntorch.zeros(2**40, device='cuda')", ["device_out_of_memory"]),
        "no-room-for-context": (
            139,
            "HOLD\nimport torch\ntorch.zeros(1).cuda()\ntorch.zeros(2**28).cuda()",
            ["device_out_of_memory"],
        ),
        "other-process": (139, "HOLD\n" + _FIT, ["device_out_of_memory"]),
        "fragmented": (
            4,
            "import torch\nblocks = [torch.zeros(2**22, device='cuda') for _ in range(230)]\ndel blocks[::2]\n"
            "torch.zeros(2**28, device='cuda')",
            ["device_out_of_memory"],
        ),
        "cublas": (
            139,
            "import torch\nfree = torch.cuda.mem_get_info()[0] - 20 * 2**20\n"
            "held = torch.empty(free, dtype=torch.uint8, device='cuda')\n"
            "a = held[:4096].view(torch.float32).view(32, 32)\na @ a",
            ["device_out_of_memory", "library_out_of_memory"],
        ),
    },
    "jax": {
        "keras-fit": (6, _FIT, ["device_out_of_memory"]),
        "keras-optimizer": (5, _WIDE, ["device_out_of_memory"]),
        "keras-build": (2, _WIDE, ["device_out_of_memory"]),
        "one-array": (4, "import jax.numpy as jnp\nprint(jnp.zeros(2**34).sum())", ["device_out_of_memory"]),
        "eager": (
            4,
            "import jax.numpy as jnp\na = [jnp.zeros(2**28) for _ in range(8)]\nprint(a[-1].sum())",
            ["device_out_of_memory"],
        ),
        "other-process": (
            130,
            "HOLD\nimport jax.numpy as jnp\nprint((jnp.zeros(2**28) + 1).sum())",
            ["device_out_of_memory", "library_out_of_memory"],
        ),
    },
    "tensorflow": {
        "keras-fit-graph": (
            6,
            _NET + "x, y = data()\nm = net()\nm.jit_compile = False\nm.fit(x, y, batch_size=512)",
            ["device_out_of_memory"],
        ),
        "keras-fit-jit": (
            6,
            _NET + "x, y = data()\nm = net()\nm.jit_compile = True\nm.fit(x, y, batch_size=512)",
            ["device_out_of_memory"],
        ),
        "keras-optimizer": (5, _WIDE, ["device_out_of_memory"]),
        "keras-build": (1, _WIDE, ["device_out_of_memory"]),
        "eager": (4, "import tensorflow as tf\na = [tf.zeros((2**28,)) for _ in range(8)]", ["device_out_of_memory"]),
        "copy-to-card": (
            1,
            "import tensorflow as tf, numpy as np\nwith tf.device('GPU:0'): tf.constant(np.zeros(2**29, 'float32'))",
            ["device_out_of_memory"],
        ),
        "other-process": (100, "HOLD\n" + _FIT, ["device_out_of_memory", "library_out_of_memory"]),
    },
}

_HOLD = """
import subprocess, sys, time
holder = subprocess.Popen([sys.executable, "-c", '''
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
cuda.cuInit(0); cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); cuda.cuCtxSetCurrent(context)
cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(free.value - 1200 * 2**20)) == 0
print("held", flush=True); time.sleep(60)
'''], stdout=subprocess.PIPE)
import atexit; atexit.register(holder.kill)
holder.stdout.readline()
"""


def main() -> None:
    """Provoke the cases of one backend."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", required=True, choices=sorted(CASES))
    parser.add_argument("--only", default="", help="a part of the names of the cases")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, (gib, program, kinds) in CASES[arguments.backend].items():
        if arguments.only in name:
            found = provoke(arguments.backend, name, gib, program, kinds, arguments.out)
            with (arguments.out / "explain.jsonl").open("a") as lines:
                lines.write(json.dumps(found) + "\n")
            print(json.dumps(found), flush=True)


def provoke(backend: str, name: str, gib: float, program: str, kinds: list[str], out: Path) -> dict[str, Any]:
    """Run one program out of memory, and explain its log."""
    from fitroom.explaining.explain import explain_file

    limit = "" if "HOLD" in program else _LIMITS[backend].format(gib=gib, mib=int(gib * 1024))
    text = limit + textwrap.dedent(program).replace("HOLD", _HOLD)
    environment = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "0"}
    if backend == "jax":
        environment["XLA_CLIENT_MEM_FRACTION"] = str(round(gib / 139.8, 4))
    try:
        finished = subprocess.run(
            [sys.executable, "-c", text], env=environment, text=True, errors="replace", timeout=150,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        log, code = finished.stdout, finished.returncode
    except subprocess.TimeoutExpired as error:
        log, code = (error.stdout or b"").decode(errors="replace"), None
    path = out / f"h200-{backend}-{name}.log"
    path.write_text(shorten(log))
    explanation = explain_file(path).to_dict() if log.strip() else {}
    failure, cause = explanation.get("failure") or {}, explanation.get("cause") or {}
    package = "tensorflow" if backend == "tensorflow" else backend
    return {
        "case": f"{backend}-{name}",
        "exit_code": code,
        "recognised": explanation.get("recognised"),
        "is_right": failure.get("kind") in kinds,
        "cause": cause.get("name"),
        **{
            key: failure.get(key)
            for key in ("kind", "framework", "device", "device_index", "requested_bytes", "phase", "layer")
        },
        "limit_gib": gib,
        "version": metadata.version(package),
        "card": "NVIDIA H200",
        "date": str(datetime.date.today()),
    }


def shorten(log: str) -> str:
    """The log without the chunks of allocators' dumps, and with plain paths."""
    lines = [
        line for line in log.splitlines() if not re.search(r"\b(InUse|Free ) at [0-9a-f]+ of size|Chunks of size", line)
    ]
    kept = lines if len(lines) <= 160 else [*lines[:60], *lines[-100:]]
    return re.sub(r"/[\w./-]*?/(site-packages|dist-packages|tf|site)/", r"/home/user/env/\1/", "\n".join(kept)) + "\n"


if __name__ == "__main__":
    main()
