"""What can be told to be wrong is refused before Keras is imported, which takes seconds."""

import json
import subprocess
import sys

RUN = """
import json, sys
from fitroom.cli.main import fitroom
from fitroom.errors import FitroomError

said = []
for arguments in json.loads(sys.argv[1]):
    try:
        fitroom.main(arguments, standalone_mode=False)
    except FitroomError as error:
        said.append(str(error))
print(json.dumps([said, "keras" in sys.modules]))
"""
PLACE = ("--gpu", "T4", "--backend", "torch")


CASES = [
    (("estimate", "xcpetion", *PLACE), "did you mean 'Xception'"),
    (("estimate", "nothing.keras", *PLACE), "There is no file 'nothing.keras'"),
    (("estimate", "nothing.py:make", *PLACE), "There is no file 'nothing.py'"),
    (("estimate", "xception", *PLACE, "--optimizer", "adm"), "did you mean 'adam"),
    (("estimate", "xception", *PLACE, "--precision", "float23"), "did you mean 'float32'"),
    (("estimate", "xception", "--gpu", "RX 7900 XTX", "--backend", "jax"), "'RX 7900 XTX' by AMD"),
    (("estimate", "xception", "--gpu", "T4", "--backend", "mxnet"), "known are: jax, tensorflow, torch, all"),
    (("plan", "xcpetion", *PLACE), "did you mean 'Xception'"),
    (("plan", "xception", *PLACE, "--optimizer", "adm"), "did you mean 'adam"),
    (("plan", "xception", "--gpu", "MI300X", "--backend", "torch"), "'MI300X' by AMD"),
    (("lean", "xception", "--gpu", "RTX 9999", "--backend", "torch"), "Unknown GPU. Received: 'RTX 9999'"),
    (("kernels", "xception", "--gpu", "RTX 9999", "--backend", "torch"), "Unknown GPU. Received: 'RTX 9999'"),
    (("segments", "xcpetion", "--backend", "torch"), "did you mean 'Xception'"),
    (("train", ".", "--model", "xcpetion", "--backend", "torch"), "did you mean 'Xception'"),
    (("train", ".", "--optimizer", "adm", "--backend", "torch"), "did you mean 'adam"),
]


def test_wrong_names_are_refused_before_keras_is_imported(tmp_path):
    command = [sys.executable, "-c", RUN, json.dumps([arguments for arguments, _ in CASES])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    said, imports_keras = json.loads(done.stdout.splitlines()[-1])
    assert not imports_keras
    for (arguments, expected), found in zip(CASES, said, strict=True):
        assert expected in found, arguments
