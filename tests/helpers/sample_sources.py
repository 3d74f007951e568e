"""What tests of sources share: a state sent through disk formats, and runs that stop and go on."""

import io
import json
import random
from typing import Any

import numpy as np

from fitroom.batch import Batch, map_structure
from fitroom.inputs import randomness
from fitroom.inputs.prefetch import prefetch


def through_disk(state: dict[str, Any]) -> dict[str, Any]:
    """As a checkpoint would: numbers and words as JSON, arrays as .npy without pickle."""
    files: dict[str, bytes] = {}

    def written(value: Any) -> Any:
        if isinstance(value, dict):
            assert all(isinstance(key, str) for key in value)
            return {key: written(item) for key, item in value.items()}
        if isinstance(value, np.ndarray):
            file = io.BytesIO()
            np.save(file, value, allow_pickle=False)
            files[f"array {len(files)}"] = file.getvalue()
            return f"array {len(files) - 1}"
        return value

    def read(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: read(item) for key, item in value.items()}
        if isinstance(value, str) and value in files:
            return np.load(io.BytesIO(files[value]), allow_pickle=False)
        return value

    return read(json.loads(json.dumps(written(state))))


def values(batch: Batch) -> Any:
    """The whole batch as lists, to compare."""
    return map_structure(lambda array: np.asarray(array).tolist(), batch.data())


def trained(source: Any, *, epochs: int, epoch: int = 0, start: int = 0) -> list[tuple[int, int, Any, dict[str, Any]]]:
    """(epoch, number, batch, state) of each batch, made and told as in training."""
    seen = []
    for current in range(epoch, epochs):
        np.random.random()  # as a callback may when an epoch begins
        with prefetch(source.epoch(current, start), lambda batch: batch) as batches:
            for number, item in enumerate(batches, start=start):
                seen.append((current, number, values(item.batch), item.state))
        source.on_epoch_end()
        start = 0
    return seen


def check_goes_on_exactly(make_source: Any, *, epochs: int = 3) -> None:
    """Stop before each batch in turn; the batches that follow are those of the run that was not stopped.

    Before an epoch both the state of the process and the source's are kept, within one what was recorded with a batch.
    """
    _stir(7)
    source = make_source()
    source.peek()
    whole, stops = [], []
    for epoch in range(epochs):
        stops.append((epoch, 0, len(whole), source.state()))
        made = trained(source, epochs=epoch + 1, epoch=epoch)
        stops += [(epoch, n + 1, len(whole) + n + 1, state) for n, (_, _, _, state) in enumerate(made)]
        whole += [row[:3] for row in made]
    assert len({str(batch) for _, _, batch in whole}) > 1
    for epoch, start, index, state in stops:
        _stir(1000 + index)
        again = make_source()
        again.peek()
        _stir(2000 + index)
        kept = through_disk(state)
        if start == 0 and "random" in kept:  # arrays need nothing but a position
            randomness.restore(kept["random"])
        again.restore(kept)
        rest = trained(again, epochs=epochs, epoch=epoch, start=start)
        assert [row[:3] for row in rest] == whole[index:], (epoch, start)


def _stir(seed: int) -> None:
    """Another random state, as another process has."""
    random.seed(seed)
    np.random.seed(seed)
