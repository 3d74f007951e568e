"""Estimates and plans of models that users bring.

Running a step would be a real out-of-memory: the process is given too little memory for it.
"""

import contextlib
import os
import resource
from pathlib import Path

import keras
import numpy as np
import pytest

import fitroom
from keras_models_for_estimates import augmented_model, compiled, picture_model, token_model

BACKEND = keras.backend.backend()
MIB = 2**20
EAGER = None if BACKEND == "torch" else fitroom.Recipe(jit=False)  # XLA's compiler is a process with memory of its own


@contextlib.contextmanager
def no_more_memory_than(more_bytes):
    """The process cannot take more than so many bytes beyond what it has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    has_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (has_bytes + more_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_neither_estimates_nor_plans_run_the_model():
    model = augmented_model(rotate=BACKEND != "torch")  # there each picture by itself, which takes long to follow
    fitroom.estimate(model, 2, gpu="H200", recipe=EAGER)  # what is loaded and started for good
    with no_more_memory_than(300 * MIB):
        whole = fitroom.estimate(model, 4000, gpu="H200", recipe=EAGER)
        assert whole.peak_bytes > 1000 * MIB
        plan = fitroom.plan(model, 4000, gpu="H200", budget=whole.required_bytes // 2, keep=("jit", "remat"))
    assert plan.micro_batch < 4000


def test_open_dimensions_are_asked_for_by_name_and_taken_from_whoever_says():
    model = picture_model()
    with pytest.raises(fitroom.ModelError, match=r"'pictures'.*None, None, 3") as asked:
        fitroom.estimate(model, 8, gpu="T4", recipe=EAGER)
    assert "--image-size" in asked.value.hint
    assert "input_shape" in asked.value.hint
    with pytest.raises(fitroom.ModelError, match="'tokens'") as asked:
        fitroom.estimate(token_model(), 8, gpu="T4", recipe=EAGER)
    assert "--sequence-length" in asked.value.hint
    with pytest.raises(fitroom.InputError, match="does not fit the input 'pictures'"):
        fitroom.estimate(model, 8, gpu="T4", recipe=EAGER, input_shape=(64, 64, 1))
    small, large = (
        fitroom.estimate(model, 64, gpu="T4", recipe=EAGER, input_shape=(size, size, 3)) for size in (64, 128)
    )
    assert 3 < large.by_kind["activations"] / small.by_kind["activations"] < 5
    assert any("(128, 128, 3)" in note for note in large.notes)
    by_name = fitroom.estimate(token_model(), 8, gpu="T4", recipe=EAGER, input_shape={"tokens": (500,)})
    assert by_name.peak_bytes > 8 * 500 * 4


def test_fit_takes_open_dimensions_from_the_data_and_trains_batches_of_several_sizes():
    draw = np.random.default_rng(0)
    model = compiled(picture_model(), jit_compile=False)
    x = draw.random((8, 128, 128, 3), dtype="float32")
    history = fitroom.fit(model, x, np.zeros(8), batch_size=8, verbose=0, budget="16GiB")
    assert any("(128, 128, 3)" in note for note in history.fitroom["plan"]["notes"])

    def batches():
        for size in (16, 20, 16, 24):
            yield draw.random((7, size, size, 3), dtype="float32"), np.zeros(7)

    history = fitroom.fit(model, batches(), verbose=0, recipe=fitroom.Recipe(micro_batch=3))
    assert np.isfinite(history.history["loss"][0])


@pytest.mark.backends("tensorflow")
def test_what_a_model_was_compiled_with_is_obeyed_without_a_gpu():
    methods = {}
    for given in ({"jit_compile": False}, {"run_eagerly": True}, {}):
        model = compiled(keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)]), **given)
        found = [fitroom.estimate(model, 4, gpu="T4").method for _ in range(2)]  # the first leaves no trace
        assert found[0] == found[1]
        methods[str(given)] = found[0]
    assert methods == {"{'jit_compile': False}": "traced", "{'run_eagerly': True}": "traced", "{}": "compiled"}
    plan = fitroom.plan(compiled(model, jit_compile=False), 4, gpu="T4")
    assert plan.recipe.jit is False
    assert not plan.changes


@pytest.mark.backends("jax")
def test_a_model_that_keras_does_not_jit_is_compiled_where_jax_can_and_that_is_said():
    draw = np.random.default_rng(0)
    x, y = draw.random((8, 16, 16, 3), dtype="float32"), draw.integers(0, 3, 8)
    losses, events = [], []
    for way in ("keras", "fitroom", "fitroom, jit_compile=False"):
        model = augmented_model(size=16, jit_compile=False if "," in way else "auto")
        assert not model.jit_compile
        if way == "keras":
            history = model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
        else:
            history = fitroom.fit(model, x, y, batch_size=4, shuffle=False, verbose=0)
            events.append([event["kind"] for event in history.fitroom["events"]])
        losses.append(history.history["loss"][0])
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)
    assert events == [["jit"], []]


@pytest.mark.backends("jax")
def test_the_loop_over_parts_is_followed_whatever_jax_tells_of_it():
    import jax

    from fitroom.backends.jax.trace.jaxpr.program import program_of
    from fitroom.backends.jax.train.micro_batches import MICRO_BATCH_LOOP

    def step(weights, batch):
        with jax.named_scope(MICRO_BATCH_LOOP):
            return jax.lax.scan(lambda sums, part: (sums + weights * part.sum(), None), weights, batch)[0]

    jaxpr = jax.make_jaxpr(step)(np.zeros(8, "float32"), np.zeros((3, 5), "float32")).jaxpr
    [loop] = [equation for equation in jaxpr.eqns if equation.primitive.name == "scan"]
    before = [operation.name for operation in program_of(jaxpr, merged=False).operations]
    loop.params.pop("num_carry", None)  # as JAX 0.11 has it
    loop.params.pop("num_consts", None)
    assert [operation.name for operation in program_of(jaxpr, merged=False).operations] == before
    assert {"reduce_sum", "mul"} <= set(before)


@pytest.mark.backends("jax")
def test_layers_that_jax_cannot_trace_are_estimated_and_recomputed_around():
    model = augmented_model(size=16, crop=True)
    assert fitroom.estimate(model, 8, gpu="T4", recipe=fitroom.Recipe(micro_batch=4)).method == "traced"
    x, y = np.zeros((4, 16, 16, 3), "float32"), np.zeros(4)
    history = fitroom.fit(model, x, y, batch_size=4, verbose=0, recipe=fitroom.Recipe(remat="blocks"))
    assert np.isfinite(history.history["loss"][0])


class Reconstructing(keras.Model):
    """A model whose own step takes the inputs alone, as a variational autoencoder's does."""

    def train_step(self, *arguments):
        *state, data = arguments
        assert hasattr(data, "shape"), f"Keras would hand over an array, not {type(data)}"
        return super().train_step(*state, (data, data))


def test_a_model_that_makes_its_loss_of_the_inputs_is_estimated_as_it_is_trained():
    inputs = keras.Input((16,))
    model = Reconstructing(inputs, keras.layers.ActivityRegularization(l2=1.0)(keras.layers.Dense(16)(inputs)))
    model.compile("adam")
    assert fitroom.estimate(model, 64, gpu="T4", recipe=EAGER).peak_bytes > 0
    history = fitroom.fit(model, np.ones((64, 16), "float32"), verbose=0)
    assert np.isfinite(history.history["loss"][0])


def test_a_metric_of_every_pixel_takes_no_time_to_follow():
    inputs = keras.Input((64, 64, 3))
    model = keras.Model(inputs, keras.layers.Conv2D(3, 1, activation="softmax")(inputs))
    iou = keras.metrics.MeanIoU(num_classes=3, sparse_y_pred=False)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=[iou])
    cut = fitroom.estimate(model, 4096, gpu="T4", recipe=fitroom.Recipe(micro_batch=1024, jit=EAGER and EAGER.jit))
    assert cut.peak_bytes > 1024 * 64 * 64 * 3 * 4


class Detector(keras.Model):
    """Compiles itself, and learns from bounding boxes, as detectors of KerasHub."""

    def compile(self, optimizer="auto", loss="auto", **arguments):
        loss = keras.losses.Huber() if loss == "auto" else loss
        super().compile("sgd" if optimizer == "auto" else optimizer, loss, **arguments)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return super().compute_loss(x, y["boxes"][:, 0], y_pred)


def test_a_model_that_compiles_itself_and_learns_from_boxes():
    images = keras.Input((16, 16, 3))
    places = keras.layers.Dense(4)(keras.layers.GlobalAveragePooling2D()(images))
    estimated = fitroom.estimate(Detector(images, places), 4, gpu="T4", recipe=EAGER)
    assert any("SGD and huber" in note for note in estimated.notes)


def test_tensors_are_split_at_given_places():
    rows = keras.Input((640,))
    wide, narrow, rest = keras.ops.split(keras.layers.Dense(640)(rows), [384, 500], axis=-1)
    model = keras.Model(rows, [keras.layers.Dense(2)(part) for part in (wide, narrow, rest)])
    assert fitroom.estimate(model, 4, gpu="T4", recipe=EAGER).peak_bytes > 0
