"""Networks, normalisation, weights, schedules and predictions."""

import sys
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import layers

from fitroom.backends.contract import Device
from fitroom.classify.classifier import load_classifier
from fitroom.classify.compiling import Schedule, default_rate
from fitroom.classify.evaluation import evaluate, publish
from fitroom.classify.loss import SmoothedCrossentropy, build_loss
from fitroom.classify.network import build_network, find_image_size
from fitroom.classify.normalisation import find_normalisation
from fitroom.classify.phases import build_phases
from fitroom.classify.precision import choose_precision
from fitroom.classify.prediction import Predictor
from fitroom.classify.seed import set_layer_seeds, set_seed
from fitroom.cli.completion import MODELS
from fitroom.data import read_picture
from fitroom.errors import InputError, ModelError, OutOfMemoryError
from fitroom.keras_model.loading.application import application_names
from fitroom.keras_model.loading.source import ModelSource
from picture_runs import TINY
from sample_pictures import class_folders

PICTURES = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3)).astype("uint8")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("tiny.py").write_text(TINY)
    yield
    sys.modules.pop("tiny", None)
    keras.config.set_dtype_policy("float32")


def network(text="mobilenet", *, classes=3, weights="none", size=32, precision=None):
    source = ModelSource(text=text, image_size=size, precision=precision)
    return build_network(source, num_classes=classes, weights=weights)


def preprocess_input(name):
    return sys.modules[application_names()[name].__module__].preprocess_input


@pytest.mark.parametrize("name", sorted(application_names()))
def test_normalisation_is_what_keras_has_beside_the_model(name):
    found = find_normalisation(name)
    pictures = PICTURES[..., ::-1] if found.reverses else PICTURES
    expected = np.asarray(preprocess_input(name)(PICTURES.astype("float32")))
    np.testing.assert_allclose(pictures * np.array(found.scale) + np.array(found.offset), expected, atol=1e-4)


@pytest.mark.parametrize("name", ["Xception", "ResNet50", "DenseNet121", "EfficientNetB0"])
def test_layers_normalise_as_keras_does_beside_the_model(name):
    pictures = keras.Input((32, 32, 3))
    normalised = keras.Model(pictures, layers.Identity()(find_normalisation(name)(pictures)))
    expected = np.asarray(preprocess_input(name)(PICTURES.astype("float32")))
    np.testing.assert_allclose(np.asarray(normalised(PICTURES)), expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("name", ["MobileNet", pytest.param("VGG16", marks=pytest.mark.slow)])
def test_a_ready_made_network_takes_raw_pictures_and_plain_keras_loads_it(name):
    made = network(name, classes=4)
    assert made.model.output_shape == (None, 4)
    assert made.gives_probabilities
    publish(made, Path("."))
    loaded = keras.saving.load_model("model.keras")
    np.testing.assert_allclose(loaded.predict(PICTURES, verbose=0), made.model.predict(PICTURES, verbose=0), atol=1e-6)
    with zipfile.ZipFile("model.keras") as archive:
        config = archive.read("config.json").decode()
    assert "Lambda" not in config
    assert "fitroom" not in config


@pytest.mark.quick_on("torch")
def test_in_16_bits_normalisation_and_probabilities_stay_in_float32_and_the_file_is_float32():
    made = network("mobilenet", precision="mixed_bfloat16")
    of = {layer.name: layer.dtype_policy.name for layer in made.model.layers}
    assert (of["normalisation"], of["conv1"], of["classes"]) == ("float32", "mixed_bfloat16", "float32")
    publish(made, Path("."))
    keras.config.set_dtype_policy("float32")
    assert {layer.dtype_policy.name for layer in keras.saving.load_model("model.keras").layers} == {"float32"}


def test_a_network_to_plan_with_takes_no_memory_and_keras_does_not_make_up_for_it():
    source = ModelSource(text="mobilenetv2", image_size=32, precision="float32")
    planned_with = build_network(source, num_classes=3, weights=None, values=False)
    with keras.StatelessScope():  # at its end Keras gives values to all variables that wait for them
        pass
    assert {variable._value for variable in planned_with.model.variables} == {None}
    assert planned_with.is_pretrained  # as it would with ImageNet's weights, which were not asked for
    assert network("mobilenetv2").model.count_params() == planned_with.model.count_params()


@pytest.mark.quick_on("torch")
def test_the_size_of_pictures_is_the_models_own_unless_it_is_said():
    assert find_image_size(ModelSource(text="xception")) == 299
    assert find_image_size(ModelSource(text="efficientnet-b1")) == 240
    assert find_image_size(ModelSource(text="xception", image_size=150)) == 150


def test_a_size_that_the_model_cannot_take_is_said():
    with pytest.raises(ModelError, match="at 32 x 32") as refused:
        network("xception")
    assert "--image-size" in refused.value.hint


def test_a_function_is_told_the_classes_and_one_with_others_is_refused_with_both_numbers():
    made = network("tiny.py:make_model", weights=None)
    assert (made.model.output_shape, made.weights) == ((None, 3), "its own")
    with pytest.raises(ModelError, match=r"\(None, 4\).*\(None, 3\)") as refused:
        network("tiny.py:four_classes", weights=None)
    assert "Dense(3" in refused.value.hint
    with pytest.raises(InputError, match=r"takes.*Expected: colour images of 64 x 64"):
        network("tiny.py:four_classes", weights=None, classes=4, size=64)
    with pytest.raises(InputError, match=r"is for models of keras\.applications"):
        network("tiny.py:make_model", weights="imagenet")


def test_a_file_keeps_its_weights_and_gets_a_new_last_layer_where_the_classes_differ():
    before = network("tiny.py:make_model", weights=None).model
    before.save("before.keras")
    same = network("before.keras", weights=None)
    np.testing.assert_array_equal(same.model.predict(PICTURES, verbose=0), before.predict(PICTURES, verbose=0))
    other = network("before.keras", weights=None, classes=7)
    assert other.model.output_shape == (None, 7)
    assert "new last layer" in other.notes[0]
    np.testing.assert_array_equal(*(model.get_layer("conv").get_weights()[0] for model in (before, other.model)))


def test_a_model_that_is_given_pictures_as_they_are_is_told_so():
    inputs = keras.Input((32, 32, 3))
    pooled = layers.GlobalAveragePooling2D()(inputs)
    keras.Model(inputs, layers.Dense(3)(pooled)).save("raw.keras")
    made = network("raw.keras", weights=None)
    assert "0 to 255" in made.notes[0]
    assert not made.gives_probabilities


@pytest.mark.quick_on("torch")
def test_weights_come_from_a_file_of_the_whole_network_or_of_all_but_its_head():
    made = network("mobilenet")
    made.model.save_weights("whole.weights.h5")
    again = network("mobilenet", weights="whole.weights.h5")
    np.testing.assert_array_equal(again.model.get_weights()[0], made.model.get_weights()[0])
    assert again.notes == ()
    # In the format of the files that Keras downloads.
    application_names()["MobileNet"](weights=None, include_top=False, input_shape=(32, 32, 3)).save("top.h5")
    assert "starts from scratch" in network("mobilenet", classes=9, weights="top.h5").notes[0]
    with pytest.raises(InputError, match="do not fit this model"):
        network("vgg16", weights="whole.weights.h5")
    with pytest.raises(InputError, match="no file of weights"):
        network("mobilenet", weights="nowhere.weights.h5")


def test_the_head_is_trained_alone_then_all_but_batch_statistics():
    made = network("mobilenet")
    first, second = build_phases(10, freeze=True, unfreeze_after=3)
    first.apply(made)
    assert [weight.path for weight in made.model.trainable_weights] == ["classes/kernel", "classes/bias"]
    second.apply(made)
    kinds = {type(layer).__name__: layer.trainable for layer in made.model.layers if layer.weights}
    assert kinds == {"Conv2D": True, "BatchNormalization": False, "DepthwiseConv2D": True, "Dense": True}
    assert ((first.first_epoch, first.epochs), (second.first_epoch, second.epochs)) == ((0, 3), (3, 10))


def test_layers_draw_the_same_in_a_stretch_whether_the_process_is_new_or_not(tmp_path):
    """A kill between two stretches: the second begins with weights from a file, in a process that drew nothing."""

    def make_model():
        set_seed(3)
        return keras.Sequential([keras.Input((8,)), layers.Dense(8), layers.Dropout(0.5), layers.Dropout(0.5)])

    def begin_second_stretch(model):
        model.load_weights(tmp_path / "head.weights.h5")
        set_seed(3)
        set_layer_seeds(model, 3)
        return keras.ops.convert_to_numpy(model(np.ones((4, 8), "float32"), training=True))

    went_on = make_model()
    went_on(np.ones((4, 8), "float32"), training=True)
    went_on.save_weights(tmp_path / "head.weights.h5")
    np.testing.assert_array_equal(begin_second_stretch(went_on), begin_second_stretch(make_model()))


def test_smoothed_labels_are_keras_own_smoothing_of_one_hot_labels():
    labels = np.array([0, 2, 1])
    given = np.random.default_rng(1).dirichlet(np.ones(4), 3).astype("float32")
    expected = keras.losses.CategoricalCrossentropy(label_smoothing=0.2)(np.eye(4)[labels], given)
    assert float(build_loss(gives_probabilities=True, smoothing=0.2)(labels, given)) == pytest.approx(float(expected))
    kept = SmoothedCrossentropy.from_config(SmoothedCrossentropy(0.3, from_logits=True).get_config())
    assert (kept.smoothing, kept.from_logits) == (0.3, True)


def test_the_rate_warms_up_and_falls():
    rates = Schedule(optimizer="adam", rate=0.1, updates=100).build()._learning_rate
    values = [float(rates(step)) for step in (0, 5, 50, 100)]
    assert values[0] < 0.03
    assert values[1] == pytest.approx(0.1)
    assert values[1] > values[2] > values[3] == pytest.approx(0.001)
    assert float(Schedule(optimizer="sgd", rate=0.1, updates=1).build().learning_rate) > 0
    assert (default_rate("adam", fine_tuning=False), default_rate("adam", fine_tuning=True)) == (1e-3, 1e-4)


@pytest.mark.parametrize(
    ("capability", "policy"), [((6, 1), "float32"), ((7, 5), "mixed_float16"), ((8, 0), "mixed_bfloat16")]
)
def test_precision_is_what_the_card_does_well(capability, policy):
    card = Device(name="gpu:0", kind="gpu", description="A card")
    found = choose_precision("auto", card, capability)
    assert found.policy == policy
    assert f"compute capability {capability[0]}.{capability[1]}" in found.why
    assert choose_precision("float32", card, capability).policy == "float32"


def test_predicting_halves_what_does_not_fit_and_loses_no_picture():
    made = network("tiny.py:make_model", weights=None)
    made.model.compile("adam", "sparse_categorical_crossentropy")
    predictor = Predictor(made.model, image_size=32, resize="crop", batch_size=8)
    pictures = np.concatenate([PICTURES] * 4)[:11]
    expected = made.model.predict(pictures, verbose=0)
    real, sizes = predictor._stepper.predict, []

    def with_room_for_three(x):
        sizes.append(len(x))
        if len(x) > 3:
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1.0GiB")
        return real(x)

    predictor._stepper.predict = with_room_for_three
    np.testing.assert_allclose(predictor.images(pictures), expected, atol=1e-6)
    assert sizes[:3] == [8, 4, 2]
    assert set(sizes[3:]) == {2}

    def without_room(x):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1.0GiB")

    predictor._stepper.predict = without_room
    with pytest.raises(OutOfMemoryError):
        predictor.images(pictures)


@pytest.mark.parametrize("activation", [None, "softmax"])
def test_the_loss_of_an_evaluation_is_that_of_keras(activation):
    """Of pictures up to 255 as they are: logits so far apart that probabilities are 0."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((32, 32, 3))
    model = keras.Model(inputs, layers.Dense(3, activation)(layers.GlobalAveragePooling2D()(inputs)))
    model.layers[-1].set_weights([np.random.default_rng(0).normal(size=(3, 3)), np.zeros(3)])
    model.compile("sgd", build_loss(gives_probabilities=activation is not None, smoothing=0.0))
    folder, labels = class_folders(Path("set"), {"red": 2, "green": 2, "blue": 2}), {"red": 0, "green": 1, "blue": 2}
    files = [(file, labels[file.parent.name]) for file in sorted(folder.rglob("*.jpg"))]
    pictures = np.stack([read_picture(file, 32, "crop") for file, _ in files])
    predictor = Predictor(
        model, image_size=32, resize="crop", gives_probabilities=activation is not None, for_loss=True
    )
    found = evaluate(predictor, "test", files, list(labels), folder)
    expected = model.evaluate(pictures, np.array([label for _, label in files]), verbose=0)
    assert found["metrics"]["loss"] == pytest.approx(expected, rel=1e-4)
    # On TensorFlow Keras takes the logits from before the softmax, where a probability of 0 still has a logarithm.
    has_logits = activation is None or keras.config.backend() == "tensorflow"
    assert (found["metrics"]["loss"] > -np.log(1e-7)) == has_logits
    best = model.predict(pictures, verbose=0).argmax(axis=1)
    assert np.array(found["confusion"]).sum(axis=0).tolist() == np.bincount(best, minlength=3).tolist()


def test_the_names_that_the_shell_completes_are_those_of_keras():
    assert sorted(MODELS) == sorted(name.lower() for name in application_names())


def saved(file, shape, head):
    pictures = keras.Input(shape)
    keras.Model(pictures, head(layers.GlobalAveragePooling2D()(pictures))).save(file)
    return Path(file)


@pytest.mark.parametrize(
    ("shape", "head"),
    [
        ((32, 32, 3), lambda x: layers.Dense(1, activation="sigmoid")(x)),
        ((32, 32, 3), lambda x: [layers.Dense(3)(x), layers.Dense(2)(x)]),
        ((32, 32, 1), lambda x: layers.Dense(3)(x)),
        ((32, 48, 3), lambda x: layers.Dense(3)(x)),
    ],
    ids=["one number", "two outputs", "grey", "oblong"],
)
def test_what_is_no_classifier_of_square_pictures_is_refused(shape, head, tmp_path):
    with pytest.raises(ModelError, match="one number for each of at least two classes"):
        load_classifier(saved(tmp_path / "own.keras", shape, head))


def test_a_sigmoid_for_each_class_is_taken_as_it_stands(tmp_path):
    head = layers.Dense(3, activation="sigmoid", kernel_initializer="zeros")
    model = load_classifier(saved(tmp_path / "own.keras", (32, 32, 3), head))
    picture = class_folders(tmp_path, {"red": 1}) / "red" / "000.jpg"
    found = model.predict([picture])
    assert [probability for _, probability in found[0]["top"]] == pytest.approx([0.5] * 3)


def test_a_model_that_does_not_tell_what_it_takes_is_refused(tmp_path, monkeypatch):
    class Untold(keras.Model):
        def __init__(self):
            super().__init__()
            self.out = layers.Dense(3)

        def call(self, x):
            return self.out(keras.ops.mean(x, axis=(1, 2)))

    monkeypatch.setattr("fitroom.keras_model.loading.source.load_model", lambda source: Untold())
    with pytest.raises(ModelError, match="takes unknown shapes"):
        load_classifier(saved(tmp_path / "own.keras", (32, 32, 3), layers.Dense(3)))
