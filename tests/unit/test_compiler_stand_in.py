"""In a process that only estimates PyTorch's compiler is imported when something is compiled, and only then."""

import os
import subprocess
import sys

TORCH = """
import importlib
def __getattr__(name):
    if name != "_dynamo":
        raise AttributeError(name)
    return importlib.import_module("torch._dynamo")
"""
COMPILER = """
print("the compiler is imported")
from . import config, guards
def disable(function, recursive=True): return lambda *args: ("kept out", recursive, function(*args))
def optimize(): return "compiled"
"""
COMPILING = """
import sys
from fitroom.backends.torch.compiler_stand_in import leave_out_compiler
leave_out_compiler()
import torch._dynamo as compiler
@compiler.disable(recursive=False)
def draw(seed): return seed + 1
compiler.reset()
import torch._dynamo.config
from torch._dynamo import config
print(draw(1), config.setting, torch._dynamo.config is config)
{use}
print(draw(1), torch._dynamo.config is config, torch._dynamo.guards.config is config)
print([type(finder).__name__ for finder in sys.meta_path if "stand_in" in type(finder).__module__])
"""


def _run(folder, use):
    texts = {
        "torch/__init__.py": TORCH,
        "torch/_dynamo/__init__.py": COMPILER,
        "torch/_dynamo/config.py": "setting = 8",
        "torch/_dynamo/guards.py": "from torch._dynamo import config",
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    }
    command = [sys.executable, "-c", COMPILING.format(use=use)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


def test_the_compiler_is_imported_when_it_is_used_and_knows_what_was_kept_out_of_it(tmp_path):
    said = _run(tmp_path, "print(torch._dynamo.optimize())")
    assert said == ["2 8 True", "the compiler is imported", "compiled", "('kept out', False, 2) True True", "[]"]


def test_one_of_its_modules_brings_the_whole_compiler(tmp_path):
    said = _run(tmp_path, "import torch._dynamo.guards")
    assert said == ["2 8 True", "the compiler is imported", "('kept out', False, 2) True True", "[]"]
