"""The work of `fitroom estimate`, in this process or in one process per backend.

Keras has one backend per process, fixed at its first import. So a job chooses the backend before it imports Keras;
for several backends it is sent, as JSON, to one process each:

    python -m fitroom.cli.estimate_job JOB BACKEND
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from fitroom.backends.choose import choose_backend, installed_backends
from fitroom.backends.quiet import quieten_for_estimates
from fitroom.cards.catalogue import Card, check_nvidia
from fitroom.cli.answer_cache import key_of, load_answer, store_answer
from fitroom.distribution.shares import check_batch
from fitroom.errors import CompilerError, FitroomError, UnknownNameError
from fitroom.estimating.estimate import SMALLEST_LIMIT, choose_card, estimate
from fitroom.input_sizes import known_sizes
from fitroom.keras_model.loading.source import ModelSource, check_model, load_resizable
from fitroom.keras_model.optimizers import check_optimizer
from fitroom.memory.estimate import Estimate
from fitroom.recipe import Recipe
from fitroom.report.estimate.comparison import Cell, Refusal
from fitroom.units import parse_bytes

INPUT_DTYPES = (
    *("bool", "uint8", "uint16", "uint32", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64"),
)


@dataclass(frozen=True, kw_only=True)
class EstimateJob:
    """One model, one recipe and card, one batch size or several."""

    model: str
    batch_sizes: tuple[int, ...]
    classes: int | None
    recipe: Recipe
    gpu: str | None
    limit: str | None
    training: bool
    measure: bool
    unsafe: bool
    sequence_length: int | None = None
    config: str | None = None
    """A JSON file with the arguments of a class or function."""

    devices: int = 1
    shard_weights: bool = False

    def run(self, backend: str | None, say: Callable[[str], None]) -> list[Cell]:
        """Estimate every batch size on one backend, in this process. `say` is called with what is being done."""
        card, card_notes = self._check()
        backend = choose_backend(backend)
        quieten_for_estimates(backend)
        keys = [self._key(backend, card, batch_size) for batch_size in self.batch_sizes]
        cached = [load_answer(key, _estimate_from_dict) for key in keys]
        if None not in cached:
            return [found for found in cached if found is not None]
        say(f"building {self.model}")
        loaded = load_resizable(
            ModelSource(
                text=self.model,
                image_size=self.recipe.image_size,
                sequence_length=self.sequence_length,
                classes=self.classes,
                precision=self.recipe.precision,
                unsafe=self.unsafe,
                config=self.config,
            )
        )
        cells: list[Cell] = []
        missing = cached.count(None)
        for batch_size, key, known in zip(self.batch_sizes, keys, cached, strict=True):
            if known is None:
                number = missing - cached[self.batch_sizes.index(batch_size) :].count(None) + 1
                place = f"estimate {number} of {missing}, " if missing > 1 else "estimating "
                say(f"{place}{self.model}, batch {batch_size}, on {backend}")
            found = known or self._estimate(loaded.model, backend, card, batch_size)
            if known is None and isinstance(found, Estimate):
                found = replace(found, notes=(*card_notes, *found.notes))
                store_answer(key, found.to_dict(with_timeline=True))
            cells.append(found)
        return cells

    def run_everywhere(self, say: Callable[[str], None]) -> list[Cell]:
        """Estimate on all backends, each in a process of its own, side by side."""
        self._check()
        backends = installed_backends() or (choose_backend(None),)
        say(f"estimating {self.model} on {', '.join(backends)}")
        with ThreadPoolExecutor(len(backends)) as pool:
            return [cell for cells in pool.map(self._run_in_child, backends) for cell in cells]

    def _check(self) -> tuple[Card, tuple[str, ...]]:
        """Raise errors that can be found before anything slow is imported. Returns the card and notes on it."""
        card, notes = choose_card(self.gpu)
        check_nvidia(card)
        check_model(self.model, self.config)
        check_optimizer(self.recipe.optimizer)
        if self.limit not in (None, SMALLEST_LIMIT):
            parse_bytes(self.limit)
        for batch_size in self.batch_sizes:
            check_batch(batch_size, self.devices)
        if self.recipe.input_dtype not in (None, *INPUT_DTYPES):
            raise UnknownNameError(
                "dtype for the input",
                str(self.recipe.input_dtype),
                INPUT_DTYPES,
                more=f"known are: {', '.join(INPUT_DTYPES)}",
            )
        return card, notes

    def _key(self, backend: str, card: Card, batch_size: int) -> str | None:
        """The cache key of the answer for one batch size."""
        everything = asdict(self) | {"batch_sizes": batch_size, "backend": backend, "gpu": (self.gpu, card.name)}
        return key_of(everything)

    def _estimate(self, model: Any, backend: str, card: Card, batch_size: int) -> Cell:
        try:
            with known_sizes(sequence_length=self.sequence_length):
                return estimate(
                    model,
                    batch_size,
                    recipe=self.recipe,
                    gpu=card,
                    limit=self.limit,
                    training=self.training,
                    measure=self.measure,
                    devices=self.devices,
                    shard_weights=self.shard_weights,
                )
        except CompilerError as error:
            if len(self.batch_sizes) == 1:
                raise
            return Refusal(backend=backend, batch_size=batch_size, reason=error.message)

    def _run_in_child(self, backend: str) -> list[Cell]:
        command = [sys.executable, "-m", __spec__.name, json.dumps(asdict(self)), backend]
        environment = {key: value for key, value in os.environ.items() if key != "KERAS_BACKEND"}
        finished = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
        lines = finished.stdout.splitlines()
        if finished.returncode == 0 and lines:
            return [_cell_from_dict(data) for data in json.loads(lines[-1])]
        said = finished.stderr.strip().splitlines()[-1:] or ["the process ended without a message"]
        reason = lines[-1] if finished.returncode == 1 and lines else said[0]
        return [Refusal(backend=backend, batch_size=size, reason=reason) for size in self.batch_sizes]


def _estimate_from_dict(data: dict[str, Any]) -> Estimate:
    return replace(Estimate.from_dict(data), seconds=0.0)


def _cell_from_dict(data: dict[str, Any]) -> Cell:
    return Refusal(**data) if "reason" in data else Estimate.from_dict(data)


def _main(job_text: str, backend: str) -> None:
    """A child process: the last line of stdout is its answer, or with exit code 1 the reason why there is none."""
    fields = json.loads(job_text)
    job = EstimateJob(**fields | {"recipe": Recipe(**fields["recipe"]), "batch_sizes": tuple(fields["batch_sizes"])})
    try:
        cells = job.run(backend, say=lambda _: None)
    except FitroomError as error:
        print(" ".join(filter(None, [error.message, error.hint and f"hint: {error.hint}"])).replace("\n", " "))
        sys.exit(1)
    print(json.dumps([_cell_to_dict(cell) for cell in cells]))


def _cell_to_dict(cell: Cell) -> dict[str, Any]:
    return cell.to_dict(with_timeline=True) if isinstance(cell, Estimate) else asdict(cell)


if __name__ == "__main__":
    _main(*sys.argv[1:])
