"""What PyTorch's own recomputation saves and costs on the twin of Keras's Xception: timm's `legacy_xception`.

    python benchmarks/measure/torch_twin.py measure --ways none checkpoint compile budget --precision mixed_bfloat16
    python benchmarks/measure/torch_twin.py measure --ways none checkpoint --quick --out /tmp/twin.jsonl  # no card

To be put beside `measure/remat.py`: 299 pixels, 5 classes, batch 64, Adam, channels first, a batch that lies on the
device. The ways: `none`, nothing recomputed; `checkpoint`, `torch.utils.checkpoint` around the stem and each block;
`compile`, `torch.compile` alone; `budget`, `torch.compile` with an activation memory budget (`--budget`). The first two
run eagerly.

One line of results/torch_twin.jsonl a way, each of a process of its own: the peak and the seconds a step in steady
state. Ratios are against `none` of the same call. With `--turns FILE` several wait for one another only while they are
timed. timm has to be installed; it is no dependency of fitroom.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness.turns import turn

RESULTS = Path(__file__).parents[1] / "results" / "torch_twin.jsonl"
MODEL = "legacy_xception"
WAYS = ("none", "checkpoint", "compile", "budget")
WARM_UP = 3
"""Steps before any is timed: the first compiles and makes Adam's state."""
STEPS = 8
ROUNDS = 4
"""The best of them counts: what disturbs a step only makes it slower."""


def main() -> None:
    """One line a way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure",))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["none", "checkpoint", "budget"])
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16"), default="float32")
    parser.add_argument("--batch-size", type=int, help="64, with --quick 2")
    parser.add_argument("--budget", type=float, default=0.4, help="activation_memory_budget of the way of that name")
    parser.add_argument("--turns", type=Path, help="a file: those that name it are timed one by one")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="small and short, to see that it runs")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.batch_size is None:
        arguments.batch_size = 2 if arguments.quick else 64
    if arguments.child:
        print("RESULT " + json.dumps(measured(arguments, arguments.ways[0])))
        return
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    plain: dict[str, Any] = {}
    for way in sorted(arguments.ways, key=lambda way: way != "none"):
        line = asked(arguments, way)
        if way == "none":
            plain = line
        line |= {f"{name}_ratio": ratio(line, plain, name) for name in ("peak_bytes", "seconds")}
        with arguments.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


def asked(arguments: argparse.Namespace, way: str) -> dict[str, Any]:
    """One way in a process of its own."""
    return {
        "what": arguments.what,
        "model": MODEL,
        "way": way,
        "budget": arguments.budget if way == "budget" else None,
        "precision": arguments.precision,
        "batch_size": arguments.batch_size,
        "pixels": pixels(arguments),
        **child(way),
        "date": time.strftime("%Y-%m-%d"),
    }


def child(way: str) -> dict[str, Any]:
    """The result of another process that measures one way."""
    command = [sys.executable, __file__, *sys.argv[1:], "--ways", way, "--child"]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    results = [line for line in finished.stdout.splitlines() if line.startswith("RESULT ")]
    if not results:
        raise SystemExit(f"{way} gave no result (exit code {finished.returncode})")
    found: dict[str, Any] = json.loads(results[-1][7:])
    return found


def ratio(line: dict[str, Any], plain: dict[str, Any], name: str) -> float | None:
    """How many times that of nothing recomputed."""
    return round(line[name] / plain[name], 4) if line.get(name) and plain.get(name) else None


def pixels(arguments: argparse.Namespace) -> int:
    """Of a side of a picture."""
    return 96 if arguments.quick else 299


def measured(arguments: argparse.Namespace, way: str) -> dict[str, Any]:
    """The peak of steps in steady state, what lies on the device between them, and the seconds a step."""
    import timm
    import torch

    on_gpu = torch.cuda.is_available()
    wait: Callable[[], Any] = torch.cuda.synchronize if on_gpu else lambda: None
    step = stepper(arguments, way, torch.device("cuda" if on_gpu else "cpu"))
    with contextlib.ExitStack() as alone:
        if way in ("none", "checkpoint"):
            alone.enter_context(turn(arguments.turns))
        for _ in range(WARM_UP):
            step()
        wait()
        if way in ("compile", "budget"):  # they must not keep the others waiting until here
            alone.enter_context(turn(arguments.turns))
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        steps, rounds = (2, 1) if arguments.quick else (STEPS, ROUNDS)
        seconds = min(timed(step, steps, wait) for _ in range(rounds))
    return {
        "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else None,
        "resting_bytes": torch.cuda.memory_allocated() if on_gpu else None,
        "seconds": round(seconds, 5),
        "gpu": torch.cuda.get_device_name() if on_gpu else None,
        "versions": {"torch": torch.__version__, "timm": timm.__version__},
    }


def timed(step: Callable[[], None], steps: int, wait: Callable[[], Any]) -> float:
    """Seconds a step."""
    begun = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return (time.perf_counter() - begun) / steps


def stepper(arguments: argparse.Namespace, way: str, device: Any) -> Callable[[], None]:
    """A function that trains on the same batch once more and leaves no gradients behind."""
    import torch

    torch.manual_seed(0)
    size = pixels(arguments)
    x = torch.rand(arguments.batch_size, 3, size, size).to(device)
    y = torch.randint(0, 5, (arguments.batch_size,)).to(device)
    model = built(device)
    forward = recomputing(model, way, arguments.budget)
    optimizer = torch.optim.Adam(model.parameters())
    mixed = arguments.precision == "mixed_bfloat16"

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=mixed):
            loss = torch.nn.functional.cross_entropy(forward(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def built(device: Any) -> Any:
    """The twin, with weights drawn at random, ready to be trained."""
    import timm

    return timm.create_model(MODEL, pretrained=False, num_classes=5).to(device).train()


def recomputing(model: Any, way: str, budget: float) -> Callable[[Any], Any]:
    """The forward pass of the model in one of the ways."""
    import torch

    if way == "none":
        return lambda x: model(x)
    if way == "checkpoint":
        return checkpointed(model)
    if way == "budget":
        import torch._functorch.config

        torch._functorch.config.activation_memory_budget = budget
    compiled: Callable[[Any], Any] = torch.compile(model)
    return compiled


def checkpointed(model: Any) -> Callable[[Any], Any]:
    """The forward pass with the stem and each of the twelve blocks recomputed by `torch.utils.checkpoint`.

    The exit flow is kept: the backward pass is through with it long before the peak, which is that of the first block.
    As everywhere with `checkpoint`, the moving statistics of batch normalization are updated twice a step.
    """
    import torch
    from torch.utils.checkpoint import checkpoint

    def in_row(*names: str) -> Any:
        return torch.nn.Sequential(*(getattr(model, name) for name in names))

    stem = in_row("conv1", "bn1", "act1", "conv2", "bn2", "act2")
    blocks = [getattr(model, f"block{number}") for number in range(1, 13)]
    exit_flow = in_row("conv3", "bn3", "act3", "conv4", "bn4", "act4")

    def forward(x: Any) -> Any:
        for segment in (stem, *blocks):
            x = checkpoint(segment, x, use_reentrant=False)
        return model.forward_head(exit_flow(x))

    return forward


if __name__ == "__main__":
    main()
