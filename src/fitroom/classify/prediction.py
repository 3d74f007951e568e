"""Class probabilities of image files, in batches as large as memory allows."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitroom.activity import activity
from fitroom.backends.choose import current_backend
from fitroom.errors import OutOfMemoryError, message_of
from fitroom.remat.graph import functional_of


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The result for one file: probabilities in the order of the classes, or the reason why it could not be read."""

    file: Path
    probabilities: Any = None
    logarithms: Any = None
    """Logarithms of the probabilities, as in Keras's loss."""

    reason: str | None = None


class Predictor:
    """Predicts with a model. Where memory runs out, the batch size is halved.

    With `for_loss`, logarithms of probabilities are those that Keras's loss has on this backend: TensorFlow's takes
    the logits from before a softmax, in which a probability that is too small for a float is not cut off.
    """

    def __init__(
        self,
        model: Any,
        *,
        image_size: int,
        resize: str,
        batch_size: int = 32,
        gives_probabilities: bool = True,
        for_loss: bool = False,
    ) -> None:
        self.batch_size = batch_size
        self._image_size, self._resize = image_size, resize
        self._gives_probabilities = gives_probabilities
        self._backend = current_backend()
        if for_loss and self._backend.name == "tensorflow" and (without := _without_softmax(model)) is not None:
            model, self._gives_probabilities = without, False
        self._stepper = self._backend.stepper(model, jit=None)

    def files(self, files: Sequence[Path]) -> Iterator[Prediction]:
        """Yield the prediction of each file, in order. A file that cannot be read does not stop the others."""
        with ThreadPoolExecutor() as pool:
            for start in range(0, len(files), self.batch_size):
                some = files[start : start + self.batch_size]
                with activity(f"{start} of {len(files)} images done"):
                    found = list(self._predict(some, list(pool.map(self._read, some))))
                yield from found

    def images(self, images: Any) -> Any:
        """The probabilities of an array of images."""
        return self._probabilities(self._outputs(images))

    def _outputs(self, images: Any) -> Any:
        import numpy as np

        size = self.batch_size
        done: list[Any] = []
        while len(images) > sum(map(len, done)):
            start = sum(map(len, done))
            some = images[start : start + size]
            try:
                found = self._stepper.predict(_pad_batch(some, size))[: len(some)]
            except Exception as error:
                if not self._backend.is_out_of_memory(error):
                    raise
            else:
                done.append(found)
                continue
            # Out of the except block: the error is gone, and with it the memory that its traceback held.
            if size == 1:
                raise OutOfMemoryError(
                    "Out of memory with a batch of one image.",
                    hint="end other programs on the card, or use the CPU with CUDA_VISIBLE_DEVICES= before the command",
                )
            size = self.batch_size = -(-size // 2)
            self._stepper.forget()
            self._backend.release()
        return np.concatenate(done).astype("float64")

    def _probabilities(self, outputs: Any) -> Any:
        import numpy as np

        return outputs if self._gives_probabilities else np.exp(_log_softmax(outputs))

    def _logarithms(self, outputs: Any) -> Any:
        """Logarithms of the probabilities: exact for logits; for probabilities not below that of Keras's epsilon."""
        import keras
        import numpy as np

        if self._gives_probabilities:
            return np.log(np.maximum(outputs, keras.config.epsilon()))
        return _log_softmax(outputs)

    def _predict(self, files: Sequence[Path], read: list[Any]) -> Iterator[Prediction]:
        import numpy as np

        good = [image for image in read if not isinstance(image, str)]
        found = iter(self._outputs(np.stack(good))) if good else iter(())
        for file, image in zip(files, read, strict=True):
            if isinstance(image, str):
                yield Prediction(file=file, reason=image)
            else:
                one = next(found)
                yield Prediction(file=file, probabilities=self._probabilities(one), logarithms=self._logarithms(one))

    def _read(self, file: Path) -> Any:
        """The image, or the reason why it cannot be read."""
        from fitroom.data import read_picture

        try:
            return read_picture(file, self._image_size, self._resize)
        except Exception as error:  # a broken file can raise any error
            return message_of(error) or type(error).__name__


def _pad_batch(images: Any, size: int) -> Any:
    """Fill up a batch by repeating its last image: another batch size would be compiled again."""
    import numpy as np

    missing = size - len(images)
    return np.concatenate([images, np.repeat(images[-1:], missing, axis=0)]) if missing > 0 else images


def _without_softmax(model: Any) -> Any:
    """A model that gives the logits, with the same weights; None where the model does not end in a softmax."""
    import keras

    if functional_of(model) is None:
        return None
    *_, last = model.layers
    activation = getattr(getattr(last, "activation", None), "__name__", "")
    if isinstance(last, keras.layers.Dense) and activation == "softmax":
        head = keras.layers.Dense(last.units, use_bias=last.use_bias, dtype=last.dtype_policy)
        logits = head(last.input)
        head.set_weights(last.get_weights())
    elif activation == "softmax" or isinstance(last, keras.layers.Softmax):
        logits = last.input
    else:
        return None
    found = keras.Model(model.inputs, logits)
    found.compile(loss=model.loss, jit_compile=model.jit_compile)  # to predict alone
    return found


def _log_softmax(logits: Any) -> Any:
    import numpy as np

    below = logits - logits.max(axis=-1, keepdims=True)
    return below - np.log(np.exp(below).sum(axis=-1, keepdims=True))
