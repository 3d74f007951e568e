"""Run an exported file, as an application would: images in, one number for each class out."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Runner = Callable[[Any], Any]
"""Takes a float32 array of images, returns an array of outputs."""

_REPEATS, _WARM_UP = 20, 3


def open_file(format_name: str, path: Path) -> Runner:
    """What runs an exported file on the CPU of this machine."""
    return {
        "onnx": _open_onnx,
        "litert": _open_litert,
        "saved-model": _open_saved_model,
        "openvino": _open_openvino,
        "torch": _open_torch,
    }[format_name](path)


def latency_seconds(run: Runner, image: Any) -> float:
    """The median time for one image, after a few that are not counted."""
    import numpy as np

    times = []
    for number in range(_WARM_UP + _REPEATS):
        started = time.perf_counter()
        run(image)
        if number >= _WARM_UP:
            times.append(time.perf_counter() - started)
    return float(np.median(times))


def _open_onnx(path: Path) -> Runner:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda images: session.run(None, {name: images})[0]


def _open_litert(path: Path) -> Runner:
    import numpy as np
    import tensorflow as tf

    interpreter = tf.lite.Interpreter(model_path=str(path))
    takes, gives = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    interpreter.allocate_tensors()
    shape = tuple(takes["shape"])

    def run(images: Any) -> Any:
        nonlocal shape
        answers = []
        for image in images:  # one at a time, as on a telephone
            if shape != (1, *image.shape):
                shape = (1, *image.shape)
                interpreter.resize_tensor_input(takes["index"], shape)
                interpreter.allocate_tensors()
            interpreter.set_tensor(takes["index"], image[None].astype(takes["dtype"]))
            interpreter.invoke()
            answers.append(interpreter.get_tensor(gives["index"])[0])
        return np.stack(answers)

    return run


def _open_saved_model(path: Path) -> Runner:
    import numpy as np
    import tensorflow as tf

    loaded = tf.saved_model.load(str(path))
    return lambda images: np.asarray(loaded.serve(tf.constant(images)))


def _open_openvino(path: Path) -> Runner:
    import openvino

    # Left to itself it computes in bfloat16 where the CPU can, which says nothing of the file.
    compiled = openvino.compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda images: next(iter(compiled(images).values()))


def _open_torch(path: Path) -> Runner:
    import numpy as np
    import torch

    module = torch.export.load(str(path)).module()

    def run(images: Any) -> Any:
        with torch.no_grad():  # the file holds a program for one image
            return np.concatenate([module(torch.tensor(image[None])).numpy() for image in images])

    return run
