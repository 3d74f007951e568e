"""What else people use to foresee memory, on the PyTorch cases of `accuracy.py`.

    pip install torchinfo && python benchmarks/predict/peers.py      # writes results/peers.jsonl; resumes where it was

- torchinfo: its "estimated total size" (input, parameters, outputs of a forward and backward pass).
- FakeTensor sum: PyTorch's fake tensors through loss and backward, every storage counted from birth to death, weights
  and optimizer slots added: no allocator, no workspaces, no gradients of the last step, as such tools are written.
- sum of layer outputs: the function that forums hand to Keras users: all layers' outputs times the batch, and the
  parameters, each a number of the model's float type.
"""

import argparse
import json
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ |= {"KERAS_BACKEND": "torch", "CUDA_VISIBLE_DEVICES": ""}
from harness.cases import CASES, Case
from predict.accuracy import RESULTS, append_line, read_lines

PEERS = "peers.jsonl"


def main() -> None:
    """Ask the peers about the cases that have no answer yet, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    if case_text := parser.parse_args().case:
        print(json.dumps(ask_peers(Case(**json.loads(case_text)))))
        return
    done = {found["name"] for found in read_lines(RESULTS / PEERS)}
    measured = {found["name"] for found in read_lines(RESULTS / "measured.jsonl")}
    for case in CASES:
        if case.backend == "torch" and case.name in measured - done:
            command = [sys.executable, __file__, "--case", json.dumps(case.to_dict())]
            finished = subprocess.run(command, capture_output=True, text=True)
            if finished.returncode:
                print(case.name, finished.stderr[-500:], flush=True)
                continue
            append_line(RESULTS / PEERS, json.loads(finished.stdout.splitlines()[-1]))
            print(finished.stdout.splitlines()[-1], flush=True)


def ask_peers(case: Case) -> dict[str, Any]:
    """Each peer's figure in bytes; None where it fails, with what it said."""
    from harness.case_models import build

    model = build(case)
    answers: dict[str, Any] = {"name": case.name}
    for peer in (torchinfo_bytes, fake_tensor_bytes, layer_outputs_bytes):
        name = peer.__name__.removesuffix("_bytes")
        try:
            answers[name] = int(peer(model, case))
        except Exception as error:  # a peer that fails is a result, too
            answers |= {name: None, f"{name}_error": str(error)[:300]}
    return answers


def torchinfo_bytes(model: Any, case: Case) -> int:
    """As torchinfo counts."""
    import torchinfo

    from harness.fake_batch import fake_mode, fake_samples

    with fake_mode():
        x, _ = fake_samples(case)
        found = torchinfo.summary(model, input_data=[x], verbose=0)
    return int(found.total_input + found.total_output_bytes + found.total_param_bytes)


def fake_tensor_bytes(model: Any, case: Case) -> int:
    """The most that fake storages hold at once, forward and backward."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from harness.fake_batch import fake_mode, fake_samples

    class Storages(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.now_bytes = self.peak_bytes = 0
            self.seen: set[int] = set()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            torch.utils._pytree.tree_map_only(torch.Tensor, self.count, result)
            return result

        def count(self, tensor: Any) -> None:
            storage = tensor.untyped_storage()
            if storage._cdata in self.seen:
                return
            self.seen.add(storage._cdata)
            self.now_bytes += storage.nbytes()
            self.peak_bytes = max(self.peak_bytes, self.now_bytes)
            weakref.finalize(storage, self.forget, storage._cdata, storage.nbytes())

        def forget(self, key: int, size_bytes: int) -> None:
            self.seen.discard(key)
            self.now_bytes -= size_bytes

    model.optimizer.build(model.trainable_variables)
    state = [variable.value for variable in (*model.variables, *model.optimizer.variables)]
    with fake_mode(), Storages() as storages:
        x, y = fake_samples(case)
        loss = model.compute_loss(x, y, model(x, training=True))
        loss.backward()
    return storages.peak_bytes + sum(value.nbytes for value in state)


def layer_outputs_bytes(model: Any, case: Case) -> int:
    """Numbers in all layers' outputs times the batch, plus parameters, times the bytes of a number."""
    import math

    import keras

    numbers = 0
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            continue
        for output in keras.tree.flatten(layer.output):
            numbers += math.prod(size for size in output.shape if size is not None)
    number_bytes = 4 if case.precision == "float32" else 2
    return number_bytes * (case.batch_size * numbers + model.count_params())


if __name__ == "__main__":
    main()
