"""The compiler runs in a process of its own: when that dies, whoever asked lives on and says why."""

import json
import os

import pytest

from processes import needs
from ready_process import run_forked

PROGRAM = """
import json, subprocess

import jax
import jax.numpy as jnp

from fitroom.backends.jax.trace import compiler
from fitroom.backends.jax.trace.step import JaxStep
from fitroom.backends.xla.attribution import Argument
from fitroom.errors import FitroomError
from fitroom.cards.catalogue import find_card

def step(state, batch):
    return jnp.tanh(state @ batch), state

array = jax.ShapeDtypeStruct((256, 256), "float32")
arguments = [Argument(size_bytes=256 * 256 * 4, kind=kind, layer=None) for kind in ("weights", "input")]
jitted = jax.jit(step, donate_argnums=0, keep_unused=True)
ready = JaxStep(jitted=jitted, specs=(array, array), arguments=tuple(arguments), layer_names=frozenset())

{harm}

try:
    timeline = compiler.StepCompiler(ready, find_card("T4")).timeline(2**30)
    print(json.dumps([timeline.peak_bytes]))
except FitroomError as error:
    print(json.dumps([type(error).__name__, error.message, error.hint]))
"""

KILL_IT = """
class Killed(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.kill()

subprocess.Popen = Killed
"""


def describe_the_card_as(text: str) -> str:
    return f"compiler.target_description = lambda card, limit_bytes: {text!r}"


@pytest.fixture
def answer(tmp_path):
    """What comes of compiling a small step after some harm was done."""
    needs("jax")

    def answer(harm: str) -> list:
        env = os.environ | {"FITROOM_CACHE_DIR": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu"}
        program = PROGRAM.replace("{harm}", harm)
        done = run_forked("-c", program, backend="jax", cwd=tmp_path, env=env, own_compiler=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return answer


def test_unharmed_it_answers_and_keeps_the_answer(answer, tmp_path):
    (peak_bytes,) = answer("")
    assert peak_bytes >= 3 * 256 * 256 * 4
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_crash_of_the_compiler_is_an_error_with_a_next_step(answer, tmp_path):
    """XLA divides by what this description leaves out."""
    crashing = describe_the_card_as(
        "gpu_device_info { cuda_compute_capability { major: 7 minor: 5 } core_count: 40 "
        'device_memory_size: 16000000000 } platform_name: "CUDA"'
    )
    kind, message, hint = answer(crashing)
    assert kind == "CompilerError"
    assert "crashed (SIG" in message
    assert "T4" in message
    assert "--limit" in hint
    assert not (tmp_path / "cache").exists()


def test_a_compiler_that_is_killed_is_an_error_that_speaks_of_memory(answer, tmp_path):
    kind, message, hint = answer(KILL_IT)
    assert kind == "CompilerError"
    assert "killed" in message
    assert "memory" in message
    assert "smaller batch" in hint
    assert not (tmp_path / "cache").exists()


def test_a_compiler_that_refuses_is_quoted(answer):
    kind, message, hint = answer(describe_the_card_as("nonsense {"))
    assert kind == "CompilerError"
    assert "Failed to parse" in message
    assert hint
