"""What a network makes of picture files, as many at once as memory takes."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitroom.backends.choose import current_backend
from fitroom.errors import OutOfMemoryError, message_of


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What was found for one file: probabilities in the order of the classes, or why it could not be read."""

    file: Path
    probabilities: Any = None
    logarithms: Any = None
    """Of the probabilities, as Keras's loss has them."""

    reason: str | None = None


class Predictor:
    """A network at work. Out of memory halves how many pictures go to the device at once."""

    def __init__(
        self, model: Any, *, image_size: int, resize: str, batch_size: int = 32, gives_probabilities: bool = True
    ) -> None:
        self.batch_size = batch_size
        self._image_size, self._resize = image_size, resize
        self._gives_probabilities = gives_probabilities
        self._backend = current_backend()
        self._stepper = self._backend.stepper(model, jit=None)

    def files(self, files: Sequence[Path]) -> Iterator[Prediction]:
        """Each file's, in their order. A file that cannot be read is no reason to stop."""
        with ThreadPoolExecutor() as pool:
            for start in range(0, len(files), self.batch_size):
                some = files[start : start + self.batch_size]
                yield from self._predicted(some, list(pool.map(self._read, some)))

    def pictures(self, pictures: Any) -> Any:
        """Probabilities for an array of pictures."""
        return self._probabilities(self._outputs(pictures))

    def _outputs(self, pictures: Any) -> Any:
        import numpy as np

        size = self.batch_size
        done: list[Any] = []
        while len(pictures) > sum(map(len, done)):
            start = sum(map(len, done))
            some = pictures[start : start + size]
            try:
                found = self._stepper.predict(_filled(some, size))[: len(some)]
            except Exception as error:
                if not self._backend.is_out_of_memory(error):
                    raise
            else:
                done.append(found)
                continue
            # Here the error is gone, and with it all that its traceback held.
            if size == 1:
                raise OutOfMemoryError(
                    "Out of memory with one picture at once.",
                    hint="end what else uses the card, or hide it: CUDA_VISIBLE_DEVICES= before the command",
                )
            size = self.batch_size = -(-size // 2)
            self._stepper.forget()
            self._backend.release()
        return np.concatenate(done).astype("float64")

    def _probabilities(self, outputs: Any) -> Any:
        import numpy as np

        return outputs if self._gives_probabilities else np.exp(_log_softmax(outputs))

    def _logarithms(self, outputs: Any) -> Any:
        """Of logits exact, however unlikely a class is; of probabilities not below those of Keras's epsilon."""
        import keras
        import numpy as np

        if self._gives_probabilities:
            return np.log(np.maximum(outputs, keras.config.epsilon()))
        return _log_softmax(outputs)

    def _predicted(self, files: Sequence[Path], read: list[Any]) -> Iterator[Prediction]:
        import numpy as np

        good = [picture for picture in read if not isinstance(picture, str)]
        found = iter(self._outputs(np.stack(good))) if good else iter(())
        for file, picture in zip(files, read, strict=True):
            if isinstance(picture, str):
                yield Prediction(file=file, reason=picture)
            else:
                one = next(found)
                yield Prediction(file=file, probabilities=self._probabilities(one), logarithms=self._logarithms(one))

    def _read(self, file: Path) -> Any:
        """The picture, or why there is none."""
        from fitroom.data import read_picture

        try:
            return read_picture(file, self._image_size, self._resize)
        except Exception as error:  # files are of all kinds, and so are their errors
            return message_of(error) or type(error).__name__


def _filled(pictures: Any, size: int) -> Any:
    """As many as in a full batch, the last one again and again: another size would be compiled for."""
    import numpy as np

    missing = size - len(pictures)
    return np.concatenate([pictures, np.repeat(pictures[-1:], missing, axis=0)]) if missing > 0 else pictures


def _log_softmax(logits: Any) -> Any:
    import numpy as np

    below = logits - logits.max(axis=-1, keepdims=True)
    return below - np.log(np.exp(below).sum(axis=-1, keepdims=True))
