"""Models that a function returns before they are built: a size says what they are built for."""

import pytest

from fitroom.errors import ModelError
from fitroom.keras_model.input_batch import TensorSpec, input_specs
from fitroom.keras_model.loading.source import ModelSource, load_model, load_resizable
from fitroom.recipe import Recipe

SOURCE = """
import keras

class Tokens(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed, self.head = keras.layers.Embedding(9, 4), keras.layers.Dense(9)

    def call(self, tokens):
        return self.head(self.embed(tokens))

class Images(keras.Model):
    def __init__(self):
        super().__init__()
        self.conv, self.pool = keras.layers.Conv2D(4, 3), keras.layers.GlobalAveragePooling2D()

    def call(self, images):
        return self.pool(self.conv(images))
"""


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "subclassed.py"
    file.write_text(SOURCE)
    return lambda name, **sizes: ModelSource(text=f"{file}:{name}", **sizes)


def test_a_sequence_length_builds_a_model_of_tokens(source):
    model = load_model(source("Tokens", sequence_length=6))
    assert [tuple(weight.shape) for weight in model.weights] == [(9, 4), (4, 9), (9,)]
    assert input_specs(model, 2, Recipe()) == TensorSpec(shape=(2, 6), dtype="int32")


def test_an_image_size_builds_a_model_of_images_and_another_one_rebuilds_it(source):
    loaded = load_resizable(source("Images", image_size=8))
    assert tuple(loaded.model.weights[0].shape) == (3, 3, 3, 4)
    assert tuple(loaded.rebuild(16).input.shape) == (None, 16, 16, 3)


def test_without_a_size_the_error_names_the_flags(source):
    with pytest.raises(ModelError, match=r"(?s)not built.*--image-size.*--sequence-length"):
        load_model(source("Tokens"))


def test_a_size_that_the_model_cannot_take_is_refused_with_its_own_words(source):
    with pytest.raises(ModelError, match=r"cannot take tokens of shape \(None, 6\).*incompatible"):
        load_model(source("Images", sequence_length=6))


def test_a_sequence_length_that_no_input_leaves_open_is_refused(tmp_path):
    file = tmp_path / "built.py"
    file.write_text(
        "import keras\ndef make():\n    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])\n"
    )
    assert load_model(ModelSource(text=f"{file}:make", sequence_length=4)).built
    with pytest.raises(ModelError, match=r"no sequence length open.*\(None, 4\).*--sequence-length 6"):
        load_model(ModelSource(text=f"{file}:make", sequence_length=6))
