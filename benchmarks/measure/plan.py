"""Whether plans hold, and what they gain: made anywhere, carried out on a card that is capped at their budget.

    python benchmarks/measure/plan.py make --backend jax --budget 16GiB --to plans/     # anywhere
    python benchmarks/measure/plan.py run plans/*.json                                  # on the card, as the rest
    python benchmarks/measure/plan.py grid --backend jax --budget 16GiB                 # 24 recipes to compare with
    python benchmarks/measure/plan.py user --backend jax --budget 16GiB                 # what people do without us
    python benchmarks/measure/plan.py predict                                           # anywhere, after `grid`

A batch of 256, Adam. `run` trains 20 full batches and a short one, and counts out-of-memory. `grid` times recipes by
`fitroom.fit` on full batches. `user` is Keras as it comes: the largest power of two that does not crash, with Keras's
own accumulation up to the batch. What is timed is the fastest of some epochs (`--epochs`) after a short one that
compiles: others may begin meanwhile. One process each, one line of results/plan.jsonl each; all are timed one by one
where they name the same `--turns`. `predict` adds to recipes that were timed how long they should have taken, by the
speed model as it is before it is fitted to them.

With `--programs FOLDER` a step on JAX is compiled in one process, which may run out of memory as well (`first` tells),
and timed in another, which finds the programs; `--compile-only` does the first half, several side by side.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness.turns import turn
from measure.remat import SIZES, seconds_by_roofline

RESULTS = Path(__file__).parents[1] / "results" / "plan.jsonl"
BATCH_SIZE = 256
FULL_BATCHES = 20
SHORT_BATCH = 100
"""Of a plan that cuts nothing. Of others it is one part, whose shapes XLA has tried kernels for: that takes longest."""
GRID_BATCHES = 8
GRID = [
    {"precision": precision, "micro_batch": micro_batch, "remat": remat}
    for precision, micro_batch, ways in (
        ("float32", 32, ("none", "stem", "entry", "blocks")),
        ("float32", 64, ("none", "stem", "entry", "blocks")),
        ("float32", 128, ("entry", "blocks")),
        ("mixed_bfloat16", 32, ("none", "stem", "entry", "blocks")),
        ("mixed_bfloat16", 64, ("none", "stem", "entry", "blocks")),
        ("mixed_bfloat16", 128, ("none", "stem", "entry", "blocks")),
        ("mixed_bfloat16", None, ("entry", "blocks")),
    )
    for remat in ways
]
"""What fits Xception into 16 GiB on JAX."""

SEGMENTS = {
    "stem": [("block1_conv1", "add")],
    "entry": [("block1_conv1", "add"), ("block3_sepconv1_act", "add_1"), ("block4_sepconv1_act", "add_2")],
}
"""Of Xception, from where its pictures are large."""


def main() -> None:
    """Do what is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("make", "run", "grid", "user", "predict", "child"):
        options = commands.add_parser(name)
        if name in ("make", "grid", "user"):
            options.add_argument("--backend", choices=("jax", "torch", "tensorflow"), required=True)
            options.add_argument("--model", default="Xception")
            options.add_argument("--budget", required=True)
            options.add_argument("--precision", default="float32", help="of make and user; auto frees it")
        if name == "make":
            options.add_argument("--to", type=Path, required=True)
            options.add_argument("--gpu", default="H200")
        if name == "run":
            options.add_argument("plans", type=Path, nargs="+")
        if name == "grid":
            options.add_argument("--only", help="numbers of recipes, with commas")
        if name == "user":
            options.add_argument("--largest", type=int, default=BATCH_SIZE, help="the batch that is tried first")
        if name == "child":
            options.add_argument("what", choices=tuple(CHILDREN))
            options.add_argument("given", type=json.loads)
            options.add_argument("--brief", action="store_true")
        options.add_argument("--turns", type=Path, help="a file: those that name it are timed one by one")
        options.add_argument("--alone", action="store_true", help="compile by turns as well, since XLA times kernels")
        options.add_argument("--epochs", type=int, default=3, help="to take the fastest of")
        options.add_argument("--programs", type=Path, help="a folder for what JAX compiled")
        options.add_argument("--compile-only", action="store_true")
        options.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    what = {"make": make, "run": run, "grid": grid, "user": user, "predict": predict, "child": child}
    what[arguments.command](arguments)


def make(arguments: argparse.Namespace) -> None:
    """Plan without a card."""
    os.environ |= {"KERAS_BACKEND": arguments.backend, "JAX_PLATFORMS": "cpu"}
    import fitroom

    begun = time.perf_counter()
    model = built(arguments.model)
    plan = fitroom.plan(model, BATCH_SIZE, budget=arguments.budget, gpu=arguments.gpu, precision=arguments.precision)
    arguments.to.mkdir(parents=True, exist_ok=True)
    words = (arguments.backend, arguments.model, arguments.budget, arguments.precision)
    plan.save(arguments.to / f"{'-'.join(words)}.json")
    print(f"{plan}\n{time.perf_counter() - begun:.0f} s")


def run(arguments: argparse.Namespace) -> None:
    """Carry out plans."""
    for file in arguments.plans:
        plan = json.loads(file.read_text())
        given = {
            "backend": plan["backend"],
            "model": file.stem.split("-")[1],
            "budget_bytes": plan["budget"]["bytes"],
            "plan": str(file.resolve()),
        }
        told = {name: plan["recipe"].get(name) for name in ("micro_batch", "precision", "jit", "remat")}
        keep(arguments, "plan", given | told, {"predicted": plan["speed"], "required_bytes": needed(plan)})


def needed(plan: dict[str, Any]) -> int:
    """What a plan says it takes."""
    found: int = plan["estimate"]["required_bytes"]
    return found


def grid(arguments: argparse.Namespace) -> None:
    """Time the recipes to compare with."""
    numbers = range(len(GRID)) if arguments.only is None else map(int, arguments.only.split(","))
    for number in numbers:
        given = {"backend": arguments.backend, "model": arguments.model, "budget_bytes": size(arguments.budget)}
        keep(arguments, "recipe", given | GRID[number], {})


def user(arguments: argparse.Namespace) -> None:
    """Halve until it runs, as people do."""
    batch_size = arguments.largest
    while batch_size:
        given = {
            "backend": arguments.backend,
            "model": arguments.model,
            "budget_bytes": size(arguments.budget),
            "precision": arguments.precision,
            "batch_size": batch_size,
        }
        if keep(arguments, "keras", given, {}):
            return
        batch_size //= 2


def predict(arguments: argparse.Namespace) -> None:
    """How long the recipes of the grid should take that were not asked about before."""
    os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    lines = [json.loads(line) for line in arguments.out.read_text().splitlines()]
    for line in lines:
        if line["what"] == "recipe" and "predicted" not in line and not line.get("disturbed"):
            line["predicted"] = {"seconds_per_step": round(predicted_seconds(line), 5), "method": "roofline"}
    arguments.out.write_text("".join(json.dumps(line) + "\n" for line in lines))


def predicted_seconds(line: dict[str, Any]) -> float:
    """Of a recipe on the card that it was timed on."""
    import keras

    keras.utils.clear_session()  # layers are named anew, as in a process of their own
    keras.config.set_dtype_policy(line["precision"])
    return seconds_by_roofline(
        built(line["model"]),
        batch_size=BATCH_SIZE,
        jit=True,
        remat=remat_of(line["remat"]),
        **{name: line[name] for name in ("backend", "gpu", "micro_batch", "precision")},
    )


def remat_of(told: str | dict[str, Any]) -> Any:
    """What a recipe of the grid recomputes, or of a plan, as `fit` takes it."""
    import fitroom

    if isinstance(told, dict):
        return fitroom.Remat(**told)
    return fitroom.Remat(segments=SEGMENTS[told]) if told in SEGMENTS else told


def keep(arguments: argparse.Namespace, what: str, given: dict[str, Any], more: dict[str, Any]) -> bool:
    """Have a child do it and keep its line; whether it ran."""
    first = {}
    if arguments.programs and given["backend"] == "jax":
        first = {"first": compiled(arguments, what, given)}
        if arguments.compile_only or "failed" in first["first"]:
            return "failed" not in first["first"]
    found = in_child(arguments, what, given)
    line = {"what": what} | given | more | first | found | {"date": time.strftime("%Y-%m-%d")}
    line.pop("plan", None)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("a") as lines:
        lines.write(json.dumps(line) + "\n")
    print(json.dumps(line), flush=True)
    return "failed" not in found


def compiled(arguments: argparse.Namespace, what: str, given: dict[str, Any]) -> dict[str, Any]:
    """What came of the process that compiles, which is run unless it was."""
    words = [Path(str(value)).stem for value in (what, *given.values())]
    file = arguments.programs / ("-".join(words) + ".json")
    if not file.exists():
        found = in_child(arguments, what, given, "--brief")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({name: found[name] for name in ("out_of_memory", "failed") if name in found}))
    told: dict[str, Any] = json.loads(file.read_text())
    return told


def in_child(arguments: argparse.Namespace, what: str, given: dict[str, Any], *flags: str) -> dict[str, Any]:
    """What a process of its own finds."""
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
    command = [sys.executable, __file__, "child", what, json.dumps(given), "--epochs", str(arguments.epochs), *flags]
    if arguments.turns:
        command += ["--turns", str(arguments.turns)]
    if arguments.alone:
        command.append("--alone")
    if arguments.programs:
        # XLA compiles with the memory in mind that there is, so that programs are for one limit.
        environment["JAX_COMPILATION_CACHE_DIR"] = str(arguments.programs / str(given["budget_bytes"]))
        command += ["--programs", str(arguments.programs)]
    finished = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    results = [json.loads(line[7:]) for line in finished.stdout.splitlines() if line.startswith("RESULT ")]
    return results[-1] if results else {"failed": f"exit code {finished.returncode}"}


def child(arguments: argparse.Namespace) -> None:
    """In a process of its own, with the allocator capped."""
    given = arguments.given
    os.environ["KERAS_BACKEND"] = given["backend"]
    from fitroom.backends.choose import current_backend, limit_memory

    limit_memory(given["backend"], given["budget_bytes"])
    backend = current_backend()
    backend.fail_at_once()
    device = backend.devices()[0]
    found = CHILDREN[arguments.what](given, arguments)
    reading = backend.read_memory(device)
    found |= {"peak_bytes": reading.peak_bytes, "limit_bytes": reading.limit_bytes, "gpu": device.description}
    if given["backend"] == "torch" and device.kind == "gpu":
        found["allocator"] = retries()
    print("RESULT " + json.dumps(found | {"versions": versions(given["backend"])}))


def retries() -> dict[str, int]:
    """How often PyTorch asked the card for memory, and how often it first had to give back what it kept: that takes
    time."""
    import torch

    counted = torch.cuda.memory_stats()
    return {name: counted[name] for name in ("num_device_alloc", "num_device_free", "num_alloc_retries")}


def carried_out(given: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """A plan, by `fitroom.fit`."""
    import fitroom

    plan = fitroom.Plan.load(given["plan"])
    part = plan.recipe.samples_at_once(BATCH_SIZE)
    sizes = [BATCH_SIZE] * (1 if arguments.brief else FULL_BATCHES) + [part if part < BATCH_SIZE else SHORT_BATCH]
    return by_fitroom(built(given["model"]), sizes, arguments, plan=plan)


def recipe_of_grid(given: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """A recipe, by `fitroom.fit`."""
    import fitroom

    knobs = {name: given[name] for name in ("precision", "micro_batch")} | {"remat": remat_of(given["remat"])}
    sizes = [BATCH_SIZE] * (1 if arguments.brief else GRID_BATCHES)
    return by_fitroom(built(given["model"]), sizes, arguments, recipe=fitroom.Recipe(**knobs))


def by_fitroom(model: Any, sizes: list[int], arguments: argparse.Namespace, **how: Any) -> dict[str, Any]:
    """Seconds a batch, and how often memory ran out."""
    import fitroom

    def train(data: Any, epochs: int, callbacks: list[Any]) -> Any:
        return fitroom.fit(model, data, epochs=epochs, verbose=0, callbacks=callbacks, shuffle=False, **how)

    history, seconds = timed(train, model, [*{sizes[0]: None, sizes[-1]: None}], sizes, arguments)
    told = history.fitroom
    return {"seconds": seconds, "out_of_memory": told["out_of_memory"], "events": told["events"]}


def keras_alone(given: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """`model.fit`, with Keras's own accumulation."""
    import keras

    keras.config.set_dtype_policy(given["precision"])
    batch_size = given["batch_size"]
    steps = BATCH_SIZE // batch_size
    model = built(given["model"], **({"gradient_accumulation_steps": steps} if steps > 1 else {}))

    def train(data: Any, epochs: int, callbacks: list[Any]) -> Any:
        return model.fit(data, epochs=epochs, verbose=0, callbacks=callbacks)

    sizes = [batch_size] * ((1 if arguments.brief else FULL_BATCHES) * steps)
    _, seconds = timed(train, model, sizes, sizes, arguments)
    return {"seconds": seconds * steps, "accumulation": steps}


def timed(
    train: Callable[..., Any], model: Any, first: list[int], sizes: list[int], arguments: argparse.Namespace
) -> Any:
    """Train an epoch of batches of the `first` sizes and some of `sizes`: the history, and least seconds a batch."""
    import contextlib

    import keras
    import numpy as np

    random = np.random.default_rng(0)
    batch_size = sizes[0]
    x = random.random((batch_size, *model.input_shape[1:]), "float32")
    y = random.integers(0, 5, batch_size).astype("int32")

    class Batches(keras.utils.PyDataset):
        sizes = first

        def __len__(self) -> int:
            return len(self.sizes)

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            return x[: self.sizes[index]], y[: self.sizes[index]]

        def on_epoch_end(self) -> None:
            self.sizes = sizes

    begun = 0.0
    seconds: list[float] = []
    with contextlib.ExitStack() as alone:
        if arguments.alone:
            alone.enter_context(turn(arguments.turns))

        def begin(epoch: int, logs: Any) -> None:
            nonlocal begun
            if epoch == 1 and not arguments.alone:  # the others must not wait for a compiler
                alone.enter_context(turn(arguments.turns))
            begun = time.perf_counter()

        def end(epoch: int, logs: Any) -> None:
            float(logs["loss"])  # waits for the device
            seconds.append((time.perf_counter() - begun) * batch_size / sum(sizes))

        watch = keras.callbacks.LambdaCallback(on_epoch_begin=begin, on_epoch_end=end)
        history = train(Batches(), 1 if arguments.brief else 1 + arguments.epochs, [watch])
    return history, round(min(seconds[1:], default=0.0), 5)


def built(name: str, **of_optimizer: Any) -> Any:
    """The model, compiled."""
    import keras

    pixels = SIZES.get(name, 224)
    model = getattr(keras.applications, name)(weights=None, input_shape=(pixels, pixels, 3), classes=5)
    model.compile(keras.optimizers.Adam(**of_optimizer), "sparse_categorical_crossentropy")
    return model


def size(text: str) -> int:
    """In bytes."""
    from fitroom.units import parse_bytes

    return parse_bytes(text)


def versions(backend: str) -> dict[str, str]:
    """Of what decides the figures."""
    import keras

    return {"keras": keras.__version__, backend: __import__(backend).__version__}


CHILDREN: dict[str, Callable[[dict[str, Any], argparse.Namespace], dict[str, Any]]] = {
    "plan": carried_out,
    "recipe": recipe_of_grid,
    "keras": keras_alone,
}

if __name__ == "__main__":
    main()
