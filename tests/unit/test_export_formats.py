"""Which backend writes an export format, and what is said where a package is missing."""

import pytest

from fitroom.errors import BackendError, MissingExtraError
from fitroom.lean.export import formats


@pytest.fixture
def having(monkeypatch):
    """Lets choose_route see these backends and packages alone."""

    def choose(backends, packages):
        monkeypatch.setattr(formats, "installed_backends", lambda: backends)
        monkeypatch.setattr(formats, "_missing", lambda wanted: [each for each in wanted if each not in packages])

    return choose


@pytest.mark.parametrize(
    ("name", "backends", "packages", "error", "hint"),
    [
        ("openvino", ["torch"], ["openvino"], MissingExtraError, "fitroom[export]"),
        ("onnx", ["jax"], ["onnxruntime"], BackendError, "pip install jax2onnx"),  # no extra brings it
        ("onnx", ["torch"], [], MissingExtraError, "fitroom[export]"),
        ("litert", ["jax", "torch"], ["onnxruntime"], BackendError, "fitroom[tensorflow,export]"),
    ],
)
def test_what_is_missing_can_be_installed_as_the_hint_says(having, name, backends, packages, error, hint):
    having(backends, packages)
    with pytest.raises(error) as raised:
        formats.choose_route(formats.find_format(name))
    assert hint in raised.value.hint


def test_first_backend_that_can_is_chosen_unless_another_is_preferred(having):
    having(["jax", "torch"], ["jax2onnx", "onnxscript", "onnx", "onnxruntime"])
    onnx = formats.find_format("onnx")
    assert formats.choose_route(onnx) == "torch"
    assert formats.choose_route(onnx, preferred="jax") == "jax"
