"""Models by what is typed."""

import inspect
import sys

import keras
import pytest

from fitroom.errors import InputError, ModelError, UnknownNameError
from fitroom.keras_model.loading.application import application_name, application_names
from fitroom.keras_model.loading.source import ModelSource, load_model

BUILD = """
import keras

print("imported")

def make_model():
    print("built")
    inputs = keras.Input((8,))
    return keras.Model(inputs, keras.layers.Dense(3, kernel_initializer="zeros")(inputs), name="mine")

class Models:
    @staticmethod
    def other():
        return make_model()
"""


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("build", "package", "broken", "helper"):
            del sys.modules[name]
    keras.config.set_dtype_policy("float32")


def load(text: str, **wishes):
    return load_model(ModelSource(text=text, **wishes))


def test_a_name_is_taken_in_any_spelling():
    for text in ("mobilenet", "MobileNet", "mobile_net", "Mobile-Net", " mobilenet "):
        assert application_name(text) == "MobileNet"
        assert application_name(f"{text.strip()}-v2 ") == "MobileNetV2"
    model = load(" Mobile-Net", image_size=32)
    assert model.name == "mobilenet_1.00_32"
    assert model.input_shape == (None, 32, 32, 3)
    assert model.output_shape == (None, 5)


def test_every_name_of_keras_applications_can_be_built_this_way():
    names = application_names()
    assert {"Xception", "ResNet50", "EfficientNetB0", "ConvNeXtTiny", "NASNetMobile"} <= set(names)
    for builder in names.values():
        assert {"weights", "input_shape", "classes", "name"} <= set(inspect.signature(builder).parameters)


def test_a_ready_made_model_has_the_classes_and_precision_wished_for():
    model = load("mobilenet", image_size=32, classes=7, precision="mixed_bfloat16")
    assert model.output_shape == (None, 7)
    assert model.layers[1].compute_dtype == "bfloat16"


def test_a_misspelt_name_gets_the_nearest_ones():
    with pytest.raises(UnknownNameError) as raised:
        load("xcpetion")
    assert raised.value.suggestions[0] == "Xception"
    assert ".keras file" in raised.value.hint


def test_a_size_that_the_model_refuses_is_told():
    with pytest.raises(ModelError, match="Xception cannot be built at 32 x 32"):
        load("xception", image_size=32)


def test_a_name_comes_before_a_folder_or_file_called_the_same(tmp_path):
    (tmp_path / "mobilenetv2").mkdir()
    assert load("mobilenetv2", image_size=32).name == "mobilenetv2_1.00_32"
    (tmp_path / "mobilenet").write_text("notes")
    assert load("mobilenet", image_size=32).name == "mobilenet_1.00_32"


def test_a_function_in_a_file_is_called(tmp_path, capfd):
    (tmp_path / "build.py").write_text(BUILD)
    assert load("build.py:make_model").name == "mine"
    assert load(f"{tmp_path}/build.py:Models.other").name == "mine"
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "imported\nbuilt\n" in printed.err


def test_a_function_in_a_module_is_called(tmp_path, capfd):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "build.py").write_text(BUILD)
    assert load("package.build:make_model").name == "mine"
    assert capfd.readouterr().out == ""


def test_a_file_may_import_its_neighbours(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "helper.py").write_text(BUILD)
    (tmp_path / "elsewhere" / "build.py").write_text("from helper import make_model")
    assert load("elsewhere/build.py:make_model").name == "mine"


def test_a_function_builds_in_the_precision_wished_for(tmp_path):
    (tmp_path / "build.py").write_text(BUILD)
    assert load("build.py:make_model", precision="mixed_float16").layers[1].compute_dtype == "float16"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def make_model(:", "SyntaxError"),
        ("import no_such_package_at_all", "No module named 'no_such_package_at_all'"),
        ("import argparse\nargparse.ArgumentParser().parse_args(['--no-such-flag'])", r"SystemExit\(2\)"),
        ("def make_model():\n    return [1]", "returned list"),
        ("def make_model():\n    raise KeyError('x')", "KeyError"),
        ("make_model = 3", "not a function"),
    ],
)
def test_a_file_that_does_not_give_a_model_is_told_with_the_reason(tmp_path, text, message):
    (tmp_path / "broken.py").write_text(text)
    with pytest.raises(ModelError, match=message) as raised:
        load("broken.py:make_model")
    assert raised.value.hint
    assert "estimate" not in raised.value.hint  # other commands load models, too


def test_a_module_that_fails_inside_is_told_from_one_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"no module 'package\.build'") as raised:
        load("package.build:make_model")
    assert "package/build.py:function" in raised.value.hint
    (tmp_path / "broken.py").write_text("import no_such_package_at_all")
    with pytest.raises(ModelError, match="no_such_package_at_all"):
        load("broken:make_model")


@pytest.mark.parametrize("text", ["build.py", "build.py:"])
def test_a_file_without_a_function_is_told_how_to_name_one(tmp_path, text):
    (tmp_path / "build.py").write_text(BUILD)
    with pytest.raises(InputError, match="no function") as raised:
        load(text)
    assert raised.value.hint.endswith("build.py:make_model")


def test_a_function_that_is_not_there_is_told_with_those_that_are(tmp_path):
    (tmp_path / "build.py").write_text(BUILD)
    with pytest.raises(UnknownNameError) as raised:
        load("build.py:no_such_thing")
    assert "make_model" in raised.value.hint


def test_a_saved_model_comes_back_compiled_and_without_values(tmp_path):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)], name="saved")
    model.compile("rmsprop", "mse", metrics=["mae"])
    model.save("saved.keras")
    loaded = load("saved.keras")
    assert loaded.name == "saved"
    assert isinstance(loaded.optimizer, keras.optimizers.RMSprop)
    assert loaded.loss == "mse"
    assert loaded.layers[0].kernel._value is None


def test_the_older_format_is_told_how_to_become_the_newer(tmp_path):
    (tmp_path / "old.h5").write_text("")
    with pytest.raises(InputError, match="HDF5") as raised:
        load("old.h5")
    assert ".keras" in raised.value.hint


def test_a_number_of_classes_is_refused_where_the_model_has_its_own(tmp_path):
    (tmp_path / "build.py").write_text(BUILD)
    with pytest.raises(InputError, match="--classes"):
        load("build.py:make_model", classes=3)


SMALLEST = {
    *("ConvNeXtTiny", "DenseNet121", "EfficientNetB0", "EfficientNetV2B0", "InceptionV3", "MobileNet", "MobileNetV2"),
    *("MobileNetV3Small", "NASNetMobile", "ResNet50", "ResNet50V2", "VGG16", "Xception"),
}
"""The smallest of each kind: larger ones are the same code in a longer loop."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in SMALLEST else pytest.mark.slow) for name in sorted(application_names())],
)
def test_every_model_of_keras_applications_can_be_built_without_values(name):
    if name.startswith("NASNet") and keras.config.backend() == "torch":
        pytest.skip("Keras does not have it there")
    model = load_model(ModelSource(text=name.lower()))
    assert model.output_shape[-1] == 5
    assert all(variable._value is None for variable in model.trainable_variables)
