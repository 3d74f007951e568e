"""Arguments for classes of packages, read from a file."""

import json

import pytest

from fitroom.errors import InputError
from fitroom.keras_model.loading.package_class import check_package, pip_name, read_arguments
from fitroom.keras_model.loading.source import check_model, kind_of


def test_arguments_are_those_of_the_json_object(tmp_path):
    file = tmp_path / "arguments.json"
    file.write_text(json.dumps({"num_layers": 2}))
    assert read_arguments(str(file)) == {"num_layers": 2}


def test_a_serialised_object_gives_its_config(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"class_name": "BertBackbone", "config": {"num_layers": 2}}))
    assert read_arguments(str(file)) == {"num_layers": 2}


@pytest.mark.parametrize(("text", "said"), [("[1]", "JSON object"), ("{", "not valid JSON")])
def test_what_is_no_object_is_refused(tmp_path, text, said):
    file = tmp_path / "arguments.json"
    file.write_text(text)
    with pytest.raises(InputError, match=said):
        read_arguments(str(file))


def test_a_missing_package_is_refused_with_the_pip_line_before_anything_is_imported():
    with pytest.raises(InputError, match="pip install no-such-package"):
        check_package("no_such_package.models")
    assert pip_name("keras_hub") == "keras-hub"


def test_arguments_for_a_model_by_name_are_refused(tmp_path):
    (tmp_path / "arguments.json").write_text("{}")
    with pytest.raises(InputError, match="--config is for a class"):
        check_model("xception", str(tmp_path / "arguments.json"))


def test_a_folder_with_a_configuration_is_a_preset(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert kind_of(str(tmp_path)) == "preset"
