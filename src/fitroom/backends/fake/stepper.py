"""Fake steps: every sample of a micro-batch takes bytes of the fake card, and is counted when its batch is done."""

from collections.abc import Sequence
from typing import Any

from fitroom.backends.fake.device import FakeMemory
from fitroom.batch import Batch, StepName
from fitroom.recipe import Remat

SAMPLE_BYTES = 100


class FakeStepper:
    """Steps without a model; `trained` and `tested` hold the sizes of the batches that were done."""

    batches_ahead = 1

    def __init__(self, memory: FakeMemory, *, why_whole: str | None = None, remat: str | Remat | None = None) -> None:
        self.whole_because = why_whole
        self.remat = remat
        self.trained: list[int] = []
        self.tested: list[int] = []
        self._memory = memory

    def why_whole(self, step: StepName = "train_step") -> str | None:
        """The reason that the stepper was made with."""
        return self.whole_because

    def samples_per_device(self, batch_size: int) -> int:
        """All of them: one device trains."""
        return batch_size

    def trust(self, samples: int) -> None:
        """Nothing to skip: there are no trial runs."""

    def prepare(self, batch: Batch) -> None:
        """Nothing to do: there are no variables."""

    def train(self, batch: Batch, micro_batch: int) -> dict[str, Any]:
        """Take the memory of each micro-batch in turn, half of it with `remat`; then count the batch."""
        self._take(batch, micro_batch, SAMPLE_BYTES // 2 if self.remat else SAMPLE_BYTES)
        self.trained.append(batch.size)
        return {"loss": 1.0}

    def test(self, batch: Batch, micro_batch: int) -> dict[str, Any]:
        """Take the memory of each micro-batch in turn; then count the batch."""
        self._take(batch, micro_batch, SAMPLE_BYTES)
        self.tested.append(batch.size)
        return {"loss": 1.0}

    def predict(self, x: Any) -> Any:
        """The inputs as they are."""
        return x

    def predict_batch(self, batch: Batch, micro_batch: int) -> Any:
        """The inputs, once each micro-batch has taken its memory."""
        self._take(batch, micro_batch, SAMPLE_BYTES)
        return batch.x

    def join(self, outputs: Sequence[Any]) -> Any:
        """The outputs as a list."""
        return list(outputs)

    def prefetch(self, batch: Batch) -> Batch:
        """The batch as it is."""
        return batch

    def pause(self) -> None:
        """Nothing to drop: nothing is prefetched."""

    def forget(self) -> None:
        """Nothing to drop: nothing is cached."""

    def _take(self, batch: Batch, micro_batch: int, sample_bytes: int) -> None:
        for part in batch.micro_batches(micro_batch):
            self._memory.free(self._memory.allocate(part.size * sample_bytes))
