"""Other tools beside `fitroom.lean.prune`, in environments of their own, on the CPU: what is left of the same models.

    pip install --target PEERS --no-deps torch-pruning timm torchvision huggingface_hub safetensors pyyaml
    pip install --target LEGACY --no-deps tensorflow-model-optimization tf-keras dm-tree absl-py
    PYTHONPATH=PEERS python benchmarks/compatibility/pruning_peers.py torch-pruning
    PYTHONPATH=LEGACY TF_USE_LEGACY_KERAS=1 python benchmarks/compatibility/pruning_peers.py tfmot
    KERAS_BACKEND=torch python benchmarks/compatibility/pruning_peers.py fitroom

Structured pruning by half of timm's twins of Xception and MobileNetV2 (torch-pruning, by group magnitude), and of those
of keras.applications (fitroom): parameters before and after, and the seconds of CPU. tfmot has no pruning of channels;
tried is whether it sets 80 % of the weights of a Keras 2 model to zero in some steps. Prints JSON lines.
"""

import json
import math
import sys
import time
from collections.abc import Iterator
from typing import Any

SIZE, CLASSES = 128, 5


def main() -> None:
    """Print a line for each model of one tool."""
    tools = {"torch-pruning": prune_by_torch_pruning, "tfmot": prune_by_tfmot, "fitroom": prune_by_fitroom}
    for line in tools[sys.argv[1]]():
        print(json.dumps({"tool": sys.argv[1]} | line), flush=True)


def prune_by_torch_pruning() -> Iterator[dict[str, Any]]:
    """By half, all layers but the classifier, as its README has it."""
    import timm
    import torch
    import torch_pruning

    for name in ("legacy_xception", "mobilenetv2_100"):
        torch.manual_seed(0)
        model = timm.create_model(name, pretrained=False, num_classes=CLASSES)
        example = torch.randn(1, 3, SIZE, SIZE)
        before = count(model.parameters())
        started = time.process_time()
        pruner = torch_pruning.pruner.MagnitudePruner(
            model,
            example,
            importance=torch_pruning.importance.GroupMagnitudeImportance(p=2),
            pruning_ratio=0.5,
            ignored_layers=[model.get_classifier()],
        )
        pruner.step()
        seconds = time.process_time() - started
        torch.nn.functional.cross_entropy(model(torch.cat([example, example])), torch.tensor([0, 1])).backward()
        yield describe(name, before, count(model.parameters()), seconds)


def prune_by_fitroom() -> Iterator[dict[str, Any]]:
    """The same models of keras.applications."""
    import keras
    import numpy as np

    from fitroom.lean import prune

    for name in ("Xception", "MobileNetV2"):
        keras.utils.set_random_seed(0)
        model = getattr(keras.applications, name)(weights=None, input_shape=(SIZE, SIZE, 3), classes=CLASSES)
        started = time.process_time()
        pruned = prune(model, 0.5)
        seconds = time.process_time() - started
        pruned.compile("sgd", "sparse_categorical_crossentropy")
        pruned.train_on_batch(np.zeros((2, SIZE, SIZE, 3), "float32"), np.array([0, 1]))
        before, after = (count(each.trainable_variables) for each in (model, pruned))
        yield describe(name, before, after, seconds)


def prune_by_tfmot() -> Iterator[dict[str, Any]]:
    """80 % of the weights at zero after ten steps."""
    import numpy as np
    import tensorflow_model_optimization as tfmot
    import tf_keras

    model = tf_keras.applications.MobileNetV2(weights=None, input_shape=(SIZE, SIZE, 3), classes=CLASSES)
    sparsity = tfmot.sparsity.keras
    wrapped = sparsity.prune_low_magnitude(model, sparsity.PolynomialDecay(0.0, 0.8, 0, 8, frequency=1))
    wrapped.compile("sgd", "sparse_categorical_crossentropy")
    arrays: Any = np.zeros((20, SIZE, SIZE, 3), "float32"), np.zeros(20, "int32")
    started = time.process_time()
    wrapped.fit(*arrays, batch_size=2, verbose=0, callbacks=[sparsity.UpdatePruningStep()])
    seconds = time.process_time() - started
    kernels = [w for w in sparsity.strip_pruning(wrapped).get_weights() if w.ndim >= 2 and w.shape[2:3] != (1,)]
    zeros = sum(int((each == 0).sum()) for each in kernels) / sum(each.size for each in kernels)
    yield {"model": "MobileNetV2", "zeros": round(zeros, 3), "seconds": round(seconds, 1)}


def count(weights: Any) -> int:
    """The numbers in all of these."""
    return sum(math.prod(each.shape) for each in weights)


def describe(name: str, before: int, after: int, seconds: float) -> dict[str, Any]:
    """A line of the result."""
    left = round(after / before, 4)
    return {"model": name, "parameters": before, "pruned_parameters": after, "left": left, "seconds": round(seconds, 1)}


if __name__ == "__main__":
    main()
