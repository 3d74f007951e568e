"""The private names of Keras, TensorFlow, PyTorch and JAX that fitroom uses: listed, and there in what is installed.

A new version of a framework that drops one fails here, with what breaks; the table: tests/helpers/private_names.py.
"""

import functools
import importlib.util
import json
import os

import pytest

import private_names
from private_names import BACKENDS, ONLY_WITH_CUDA, PRIVATE_NAMES, find_uses, unlisted_uses, words_of_source
from processes import ROOT
from ready_process import run_forked


@functools.cache
def missing_names(backend):
    """Found in a process of its own, since Keras has one backend a process."""
    environment = os.environ | {"KERAS_BACKEND": backend, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = private_names.__file__, "--missing"
    done = run_forked(*command, backend=backend, with_tensorflow=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return set(json.loads(done.stdout.splitlines()[-1]))


@functools.cache
def uses():
    return find_uses()


@pytest.mark.parametrize(
    ("backend", "entry"),
    [
        pytest.param(backend, entry, id=f"{backend}-{entry.path}")
        for backend in BACKENDS
        for entry in PRIVATE_NAMES
        if backend in entry.backends
    ],
)
def test_the_installed_version_has_the_private_name(backend, entry):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    places = uses().get(entry.path) or uses().get(entry.name, [])
    assert entry.path not in missing_names(backend), f"{entry.breaks}; used in {', '.join(places)}"


def test_every_private_name_that_the_source_uses_is_in_the_table():
    assert unlisted_uses(uses()) == {}, "list them in tests/helpers/private_names.py, or use a public name"


def test_every_private_name_of_the_table_is_used():
    words = words_of_source()
    unused = [entry.path for entry in PRIVATE_NAMES if entry.name not in words]
    assert unused == [], "take them out of tests/helpers/private_names.py"
    assert set(words) >= ONLY_WITH_CUDA.keys()


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("model._secret_of_keras()", "_secret_of_keras"),
        ("getattr(layer, '_secret_of_keras', None)", "_secret_of_keras"),
        ("from keras.src.utils import secret", "keras.src.utils.secret"),
        ("def f():\n    from torch._inductor import config", "torch._inductor.config"),
        ("from jax._src import core\ncore.secret()", "jax._src.core.secret"),
        ("import tensorflow as tf\ntf.python", None),
        ("self._own = 1\nself._own", None),
    ],
)
def test_a_new_use_is_found(source, name, tmp_path):
    (tmp_path / "new.py").write_text(source)
    found = unlisted_uses(find_uses(tmp_path))
    assert (name in found) if name else found == {}
