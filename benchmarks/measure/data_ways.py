"""Ways to read a folder of pictures, each in a process of its own: pictures a second, processor time, memory.

    python benchmarks/measure/data_ways.py WAY FOLDER IMAGE_SIZE BATCH_SIZE

Every way decodes all pictures of a folder per class, in random order, to a square out of shape (which is what all of
them do), in batches, on two workers. After a first epoch that does not count, each line on stdin is answered by another
epoch and one line of JSON.
"""

import itertools
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil

WORKERS = 2


class Peak:
    """The most memory that this process and its children had at once, memory they share counted once."""

    def __init__(self) -> None:
        self.process = psutil.Process()
        self.start_bytes = self.peak_bytes = self._now()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            time.sleep(0.2)
            self.peak_bytes = max(self.peak_bytes, self._now())

    def _now(self) -> int:
        total = 0
        for process in [self.process, *self.process.children(recursive=True)]:
            try:
                total += process.memory_full_info().pss
            except psutil.Error:  # it ended
                continue
        return total


def measured(batches: Iterable[Any]) -> dict[str, float]:
    """One pass over the data."""
    started, used = time.perf_counter(), _processor_seconds()
    pictures = sum(int(x.shape[0]) for x, _ in batches)
    seconds = time.perf_counter() - started
    return {"pictures": pictures, "seconds": seconds, "processor_seconds": _processor_seconds() - used}


def fitroom_way(folder: str, size: int, batch: int, **options: Any) -> Iterator[Iterable[Any]]:
    """`fitroom.data.images` as `fitroom.fit` reads it."""
    from fitroom.data import images
    from fitroom.inputs import source_of

    pictures = images(folder, size, batch, validation=0, resize="stretch", workers=WORKERS, **options)
    source = source_of(pictures.train)
    for epoch in itertools.count():
        yield ((one.x, one.y) for one in source.epoch(epoch))


def keras_way(folder: str, size: int, batch: int) -> Iterator[Iterable[Any]]:
    """`keras.utils.image_dataset_from_directory` as it is."""
    import keras

    dataset = keras.utils.image_dataset_from_directory(folder, image_size=(size, size), batch_size=batch, verbose=False)
    return itertools.repeat(dataset)


def tf_data_way(folder: str, size: int, batch: int) -> Iterator[Iterable[Any]]:
    """tf.data as in TensorFlow's tutorial on pictures."""
    import tensorflow as tf

    paths, labels = _files(folder)
    files = tf.data.Dataset.from_tensor_slices((paths, labels)).shuffle(len(paths))

    def read(path: Any, label: Any) -> Any:
        return tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), channels=3), [size, size]), label

    made = files.map(read, num_parallel_calls=tf.data.AUTOTUNE).batch(batch).prefetch(tf.data.AUTOTUNE)
    return itertools.repeat(made)


def torch_way(folder: str, size: int, batch: int) -> Iterator[Iterable[Any]]:
    """A torch DataLoader with two worker processes that decode with Pillow."""
    import numpy as np
    import torch
    from PIL import Image

    paths, labels = _files(folder)

    class Pictures(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, number: int) -> Any:
            with Image.open(paths[number]) as image:
                small = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
            return torch.from_numpy(np.array(small)), labels[number]

    return itertools.repeat(torch.utils.data.DataLoader(Pictures(), batch, shuffle=True, num_workers=WORKERS))


def _files(folder: str) -> tuple[list[str], list[int]]:
    classes = sorted(path for path in Path(folder).iterdir() if path.is_dir())
    found = [(str(path), number) for number, one in enumerate(classes) for path in sorted(one.glob("*.jpg"))]
    return [path for path, _ in found], [number for _, number in found]


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


WAYS: dict[str, tuple[str, Callable[..., Iterator[Iterable[Any]]], dict[str, Any]]] = {
    "fitroom": ("torch", fitroom_way, {}),
    "fitroom, cache in memory": ("torch", fitroom_way, {"cache": "ram"}),
    "fitroom, cache on disk": ("torch", fitroom_way, {"cache": "disk"}),
    "fitroom, varied": ("torch", fitroom_way, {"augment": True}),
    "fitroom without OpenCV": ("torch", fitroom_way, {}),
    "Keras image_dataset_from_directory": ("tensorflow", keras_way, {}),
    "tf.data": ("tensorflow", tf_data_way, {}),
    "torch DataLoader": ("torch", torch_way, {}),
}
"""The Keras backend each is run with, and how it reads."""


def main() -> None:
    """One way, an epoch for each line."""
    way, folder, size, batch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    backend, make, options = WAYS[way]
    os.environ |= {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    if way == "fitroom without OpenCV":
        sys.modules["cv2"] = None  # type: ignore[assignment]
    import keras  # noqa: F401 - memory is counted from here

    if backend == "torch":
        import torch  # noqa: F401
    peak = Peak()
    epochs = make(folder, size, batch, **options)
    measured(next(epochs))
    print("ready", flush=True)
    for _ in sys.stdin:
        found = measured(next(epochs))
        used = {"peak_bytes": peak.peak_bytes, "data_bytes": peak.peak_bytes - peak.start_bytes}
        print(json.dumps(found | used), flush=True)


if __name__ == "__main__":
    main()
