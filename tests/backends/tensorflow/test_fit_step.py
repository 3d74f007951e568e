"""The step of `fitroom.fit` on jitted TensorFlow beside Keras's own, as XLA lays them out."""

import keras
import pytest

import fitroom


@pytest.fixture(scope="module")
def model():
    model = keras.applications.Xception(weights=None, input_shape=(96, 96, 3), classes=5)
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ours", "keras_own"), [({"remat": "none"}, {}), ({"micro_batch": 8}, {"keras_accumulation": 4})]
)
def test_it_takes_less_since_its_gradients_come_last_layer_first(model, ours, keras_own):
    ours, keras_own = (
        fitroom.estimate(model, 32, recipe=fitroom.Recipe(jit=True, **knobs), gpu="T4") for knobs in (ours, keras_own)
    )
    assert ours.peak_bytes < keras_own.peak_bytes
