"""Models of classes of a package, built from arguments in a file."""

import json
import sys

import pytest

from fitroom.errors import InputError, UnknownNameError
from fitroom.keras_model.loading.source import ModelSource, load_model

PACKAGE = """
import keras


class Encoder(keras.Model):
    def __init__(self, units, size=4):
        inputs = keras.Input((None, size), name="tokens")
        super().__init__(inputs, keras.layers.Dense(units)(inputs))


class Classifier(keras.Model):
    def __init__(self, encoder, num_classes, weights="download"):
        assert weights is None
        super().__init__(encoder.input, keras.layers.Dense(num_classes)(encoder.output))
"""

pytestmark = pytest.mark.quick_on("torch")


@pytest.fixture
def load(tmp_path, monkeypatch):
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "models.py").write_text(PACKAGE)
    (package / "__init__.py").write_text("from some_package import models\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "arguments.json"

    def load(name, arguments, **more):
        file.write_text(json.dumps(arguments))
        return load_model(ModelSource(text=f"some_package:{name}", config=str(file), **more))

    yield load
    for name in ("some_package", "some_package.models"):
        sys.modules.pop(name, None)


def test_a_class_is_found_in_the_modules_that_a_package_offers(load):
    assert load("Encoder", {"units": 3}).output_shape == (None, None, 3)


def test_nested_objects_are_built_and_no_weights_are_downloaded(load):
    encoder = {"class": "Encoder", "config": {"units": 3, "size": 2}}
    model = load("Classifier", {"encoder": encoder}, classes=7)
    assert model.input_shape == (None, None, 2)
    assert model.output_shape == (None, None, 7)


def test_an_unknown_class_is_refused_with_the_nearest_names(load):
    with pytest.raises(UnknownNameError, match="did you mean 'Encoder'"):
        load("Encodr", {"units": 3})


def test_wrong_arguments_are_refused_with_the_signature(load):
    with pytest.raises(InputError, match=r"(?s)units.*Encoder\(units, size=4\)") as found:
        load("Encoder", {"unit": 3})
    assert "--config" in str(found.value)


def test_wrong_arguments_of_a_nested_class_name_that_class(load):
    with pytest.raises(InputError, match="some_package:Encoder"):
        load("Classifier", {"encoder": {"class": "Encoder", "config": {}}, "num_classes": 2})
