"""`fitroom.fit` with a run folder on a real framework, in one process."""

import os
import shutil
import signal
from pathlib import Path

import keras
import numpy as np
import pytest

import fitroom
from fit_cases import assert_same, dense_net, momentum, samples, weights_of
from fitroom.keras_model.optimizers import extra_optimizers
from fitroom.runs.writer import CheckpointWriter
from fitroom.train.protect import unprotect


class Stop(Exception):  # noqa: N818
    """Ends a training as an error of the user's would."""


class At(keras.callbacks.Callback):
    """Does something after the n-th batch of a training."""

    def __init__(self, number, do):
        super().__init__()
        self.number, self.do, self.count = number, do, 0

    def on_train_batch_end(self, batch, logs=None):
        self.count += 1
        if self.count == self.number:
            self.do()


def stop():
    raise Stop("the user's callback")


def trained(run_dir, *, callbacks=(), epochs=3, units=8, model=None, **options):
    model = model or dense_net()
    history = fitroom.fit(
        model,
        *samples(),
        **{"batch_size": 10, "epochs": epochs, "verbose": 0, "seed": 5, "checkpoint_batches": 1} | options,
        callbacks=[keras.callbacks.EarlyStopping(monitor="loss", patience=9), *callbacks],
        run_dir=run_dir,
    )
    return model, history


def kinds(history):
    return [event["kind"] for event in history.fitroom["events"]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("run") / "undisturbed")


@pytest.mark.parametrize("number", [1, 5, 7])
def test_a_run_that_an_error_ended_goes_on_to_the_same_result(number, undisturbed, tmp_path):
    with pytest.raises(Stop):
        trained(tmp_path / "run", callbacks=[At(number, stop)])
    failed = fitroom.open_run(tmp_path / "run").events[-1]
    assert (failed["kind"], failed["message"]) == ("failed", "Stop: the user's callback.")
    model, history = trained(tmp_path / "run", callbacks=[At(99, stop)])
    assert "resumed" in kinds(history)
    assert "failed" not in kinds(history)
    assert_same(weights_of(model), weights_of(undisturbed[0]), rtol=0, atol=0)
    assert history.epoch == undisturbed[1].epoch
    assert history.history["loss"] == pytest.approx([float(v) for v in undisturbed[1].history["loss"]], rel=1e-6)


class AtEpoch(keras.callbacks.Callback):
    """Ends a training when an epoch begins, before its first batch."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.epoch:
            raise Stop


class Numbered(keras.utils.PyDataset):
    """The samples in batches of ten."""

    def __len__(self):
        return 5

    def __getitem__(self, number):
        return tuple(part[10 * number : 10 * number + 10] for part in samples())


class Iterable:
    """The samples in batches of ten, without a length."""

    def __iter__(self):
        return iter(Numbered()[number] for number in range(5))


def loader():
    """PyTorch's own, in an order that it draws for each pass."""
    import torch

    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*map(torch.tensor, samples())), 10, shuffle=True)


DATA = {"arrays": (lambda: samples(), {"batch_size": 10}), "PyDataset": (Numbered, {}), "iterable": (Iterable, {})}
if keras.backend.backend() == "torch":
    DATA["DataLoader"] = (loader, {})


PASSES = [
    pytest.param(
        kind,
        steps,
        # PyTorch alone draws dropout from the process's generator; elsewhere each training is traced anew.
        marks=[] if keras.backend.backend() == "torch" or (kind, steps) == ("arrays", 3) else slow,
    )
    for slow in [pytest.mark.slow]
    for kind in DATA
    for steps in (None, 3, 5)
]
"""Kinds of data, and how many batches of them an epoch takes."""


def trained_with_dropout(kind, run_dir, *callbacks, **options):
    make, arguments = DATA[kind]
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(8, activation="tanh"), keras.layers.Dropout(0.4), keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input((6,)), *layers])
    model.compile(momentum(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    data = make()
    fitroom.fit(
        model,
        *(data if isinstance(data, tuple) else (data,)),
        **arguments | options,
        epochs=4,
        verbose=0,
        validation_data=samples(),
        callbacks=list(callbacks),
        run_dir=run_dir,
    )
    return model


@pytest.mark.filterwarnings("ignore:The data ran out")
@pytest.mark.parametrize(("kind", "steps"), PASSES)
def test_a_run_stopped_between_epochs_drops_out_the_same_units(kind, steps, tmp_path):
    """On PyTorch dropout draws from the generator that Keras's way through the data draws from, too."""
    expected = weights_of(trained_with_dropout(kind, tmp_path / "undisturbed", steps_per_epoch=steps))
    for epoch in (0, 2):
        with pytest.raises(Stop):
            trained_with_dropout(kind, tmp_path / f"{epoch}", AtEpoch(epoch), steps_per_epoch=steps)
        found = weights_of(trained_with_dropout(kind, tmp_path / f"{epoch}", steps_per_epoch=steps))
        assert_same(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_finishes_the_batch_saves_and_says_how_to_go_on(number, code, undisturbed, tmp_path):
    interrupt = At(4, lambda: os.kill(os.getpid(), number))
    with pytest.raises(fitroom.RunInterrupted) as raised:
        trained(tmp_path / "run", callbacks=[interrupt], checkpoint_batches=None)
    assert raised.value.code == code
    assert "the same call again" in raised.value.hint
    model, _ = trained(tmp_path / "run", callbacks=[At(99, stop)])
    assert int(model.optimizer.iterations) == 15
    assert_same(weights_of(model), weights_of(undisturbed[0]), rtol=0, atol=0)


def test_the_finished_model_is_a_file_that_plain_keras_loads(undisturbed):
    model, history = undisturbed
    loaded = keras.saving.load_model(f"{history.fitroom['run_dir']}/model.keras")
    assert_same(weights_of(loaded), weights_of(model), rtol=0, atol=0)
    assert loaded.evaluate(*samples(), verbose=0) == pytest.approx(model.evaluate(*samples(), verbose=0), rel=1e-5)


def test_a_finished_run_is_given_back_and_more_epochs_go_on_with_it(undisturbed, tmp_path):
    trained(tmp_path / "run", epochs=2)
    model, history = trained(tmp_path / "run", epochs=2, callbacks=[At(1, stop)])
    assert history.epoch == [0, 1]
    assert int(model.optimizer.iterations) == 10
    model, history = trained(tmp_path / "run", epochs=3, callbacks=[At(99, stop)])
    assert history.epoch == [0, 1, 2]
    assert_same(weights_of(model), weights_of(undisturbed[0]), rtol=0, atol=0)


@pytest.mark.filterwarnings("error:Skipping variable loading")
def test_a_finished_run_whose_file_has_another_optimizer_is_given_back_without_a_warning(tmp_path):
    with_adam = [dense_net(optimizer=keras.optimizers.Adam(0.01)) for _ in range(2)]
    trained(tmp_path / "run", epochs=1, model=with_adam[0])
    file = tmp_path / "run" / "model.keras"
    saved = keras.saving.load_model(file)
    saved.compile("sgd")  # as `fitroom train` writes the best epoch: without the slots of Adam
    saved.save(file)
    model, _ = trained(tmp_path / "run", epochs=1, model=with_adam[1])
    assert_same(weights_of(model), weights_of(saved), rtol=0, atol=0)


def test_a_run_of_another_model_is_refused_and_the_difference_named(tmp_path):
    trained(tmp_path / "run", epochs=1)
    keras.utils.set_random_seed(7)
    other = keras.Sequential([keras.Input((6,)), keras.layers.Dense(9, activation="tanh"), keras.layers.Dense(3)])
    other.compile(momentum(), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    with pytest.raises(fitroom.InputError, match=r"another run.*9"):
        trained(tmp_path / "run", epochs=1, model=other)
    with pytest.raises(fitroom.InputError, match="another run"):
        trained(tmp_path / "run", epochs=2, batch_size=25)


def test_a_damaged_checkpoint_costs_a_batch_of_work_and_nothing_else(undisturbed, tmp_path):
    with pytest.raises(Stop):
        trained(tmp_path / "run", callbacks=[At(7, stop)])
    newest = sorted((tmp_path / "run" / "checkpoints").glob("*.npz"))[-1]
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 0xFF
    newest.write_bytes(data)
    model, history = trained(tmp_path / "run", callbacks=[At(99, stop)])
    assert "checkpoint damaged" in kinds(history)
    assert_same(weights_of(model), weights_of(undisturbed[0]), rtol=0, atol=0)


def torn(path, way):
    """A file as a fault of the disk leaves it."""
    data = path.read_bytes()
    half = len(data) // 2
    if way == "gone":
        path.unlink()
    else:
        path.write_bytes({"cut": data[:half], "empty": b"", "zeros": data[:half] + bytes(len(data) - half)}[way])


@pytest.mark.parametrize("way", ["gone", "cut", "empty", "zeros"])
def test_a_finished_run_makes_a_torn_model_again_from_its_checkpoints(way, undisturbed, tmp_path):
    run = Path(shutil.copytree(undisturbed[1].fitroom["run_dir"], tmp_path / "run"))
    torn(run / "model.keras", way)
    model, history = trained(run, callbacks=[At(1, stop)])
    assert "model damaged" in kinds(history)
    assert_same(weights_of(model), weights_of(undisturbed[0]), rtol=0, atol=0)
    assert_same(weights_of(keras.saving.load_model(run / "model.keras")), weights_of(model), rtol=0, atol=0)
    assert "finished" in kinds(trained(run)[1])


@pytest.mark.parametrize("way", ["gone", "cut"])
def test_a_finished_run_writes_a_torn_history_again(way, undisturbed, tmp_path):
    run = Path(shutil.copytree(undisturbed[1].fitroom["run_dir"], tmp_path / "run"))
    whole = (run / "history.json").read_text()
    torn(run / "history.json", way)
    trained(run, callbacks=[At(1, stop)])
    assert (run / "history.json").read_text() == whole


@pytest.mark.parametrize("way", ["gone", "cut"])
def test_a_finished_run_without_its_last_checkpoint_is_not_called_finished(way, undisturbed, tmp_path):
    run = Path(shutil.copytree(undisturbed[1].fitroom["run_dir"], tmp_path / "run"))
    *_, newest = sorted((run / "checkpoints").glob("*.npz"))
    torn(newest, way)
    with pytest.raises(fitroom.InputError, match="its last checkpoint is damaged or missing"):
        trained(run, epochs=2)
    model, history = trained(run, callbacks=[At(99, stop)])
    assert "checkpoint missing" in kinds(history)
    assert "finished" not in kinds(history)
    assert history.epoch == undisturbed[1].epoch
    assert int(model.optimizer.iterations) == 15
    assert_same(weights_of(model), weights_of(undisturbed[0]), rtol=0, atol=0)


def test_a_finished_run_without_any_checkpoint_is_a_clear_error(undisturbed, tmp_path):
    run = Path(shutil.copytree(undisturbed[1].fitroom["run_dir"], tmp_path / "run"))
    for path in (run / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(fitroom.InputError, match="no checkpoint left; its model is whole"):
        trained(run)
    assert (run / "model.keras").exists()


def test_a_path_that_cannot_be_a_run_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(fitroom.InputError):
        trained(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("mine")
    with pytest.raises(fitroom.InputError):
        trained(tmp_path / "folder")
    assert (tmp_path / "folder" / "thesis.txt").read_text() == "mine"


def test_protect_serves_model_fit_until_it_is_taken_back(capsys):
    kerass_own = keras.Model.fit
    try:
        fitroom.protect(recipe=fitroom.Recipe(micro_batch=4))
        assert "model.fit is protected" in capsys.readouterr().err
        model = dense_net()
        history = model.fit(*samples(), 10, 2, verbose=0)
        assert history.fitroom["micro_batch"] == 4
        assert int(model.optimizer.iterations) == 10
    finally:
        unprotect()
    assert keras.Model.fit is kerass_own
    assert not hasattr(dense_net().fit(*samples(), verbose=0), "fitroom")


def test_what_an_earlier_out_of_memory_held_is_freed():
    import gc
    import sys
    import weakref

    class Big:
        """Stands for the tensors in the frames of a step."""

    def died():
        big = Big()
        died.watched = weakref.ref(big)
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1.0GiB")

    try:
        died()
    except RuntimeError as error:
        sys.last_value = error  # as Python and notebooks keep it
    gc.collect()
    assert died.watched() is not None
    fitroom.fit(dense_net(), *samples(), verbose=0)
    gc.collect()
    assert died.watched() is None
    assert not hasattr(sys, "last_value")


def test_the_metrics_of_each_epoch_are_written_for_people(undisturbed):
    import json

    folder = Path(undisturbed[1].fitroom["run_dir"])
    written = json.loads((folder / "history.json").read_text())
    np.testing.assert_allclose(written["loss"], np.array(undisturbed[1].history["loss"], "float32"), rtol=1e-5)
    assert json.loads((folder / "run.json").read_text())["state"] == "finished"


def test_an_epoch_whose_batches_were_all_done_keeps_its_metrics(undisturbed, tmp_path):
    last_of_the_second = At(10, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        trained(tmp_path / "run", callbacks=[last_of_the_second], validation_data=samples(10, seed=1))
    _, history = trained(tmp_path / "run", validation_data=samples(10, seed=1))
    assert len(history.history["val_loss"]) == 3
    np.testing.assert_allclose(history.history["loss"], undisturbed[1].history["loss"], rtol=1e-6)


def test_an_epoch_whose_batches_were_all_done_keeps_what_the_models_own_step_told(tmp_path):
    class Telling(keras.Model):
        def train_step(self, *arguments):
            found = super().train_step(*arguments)
            if isinstance(found, dict):
                return {"mine": found["loss"]}
            return {"mine": found[0]["loss"]}, found[1]

    def told(run_dir, *callbacks):
        keras.utils.set_random_seed(3)
        inputs = keras.Input((6,))
        model = Telling(inputs, keras.layers.Dense(3)(inputs))
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return fitroom.fit(
            model, *samples(), batch_size=10, epochs=3, verbose=0, seed=5, callbacks=list(callbacks), run_dir=run_dir
        ).history

    whole = told(tmp_path / "whole", At(99, stop))
    with pytest.raises(SystemExit):
        told(tmp_path / "run", At(10, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    resumed = told(tmp_path / "run", At(99, stop))
    assert set(resumed) == {"mine"}
    np.testing.assert_allclose(resumed["mine"], whole["mine"], rtol=1e-5)


def test_a_run_that_a_callback_stopped_before_it_died_trains_no_further_batch(tmp_path, monkeypatch):
    def stop_training():
        stopping.model.stop_training = True

    # A checkpoint would be left out while the one before it is being written.
    monkeypatch.setattr(CheckpointWriter, "is_busy", False)
    stopping, dying = At(2, stop_training), keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: stop())
    with pytest.raises(Stop):
        trained(tmp_path / "run", callbacks=[stopping, dying])
    model, _ = trained(tmp_path / "run", callbacks=[At(99, stop), keras.callbacks.LambdaCallback()])
    assert int(model.optimizer.iterations) == 2


def test_what_is_more_than_a_number_is_kept_in_the_history(tmp_path):
    def fit(epochs):
        model = dense_net(loss="categorical_crossentropy", metrics=[keras.metrics.F1Score(average=None)])
        x, y = samples()
        return fitroom.fit(
            model, x, keras.utils.to_categorical(y), epochs=epochs, verbose=0, run_dir=tmp_path / "run"
        ).history["f1_score"]

    first = fit(1)
    assert [np.shape(each) for each in fit(2)] == [(3,), (3,)]
    np.testing.assert_allclose(first[0], fit(2)[0], rtol=1e-6)


class Paired(keras.Model):
    """Two layers with an optimizer each, as two networks that are trained against each other have."""

    def __init__(self):
        super().__init__()
        self.parts = [keras.layers.Dense(1), keras.layers.Dense(1)]

    def compile(self, optimizers):
        super().compile()
        self.each_optimizer = optimizers

    def call(self, x):
        return self.parts[0](x) * self.parts[1](x)

    def train_step(self, data):
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        if keras.backend.backend() == "torch":
            import torch

            self.zero_grad()
            loss = keras.ops.mean(self(x) ** 2)
            loss.backward()
            gradients = [[each.value.grad for each in part.trainable_weights] for part in self.parts]
            with torch.no_grad():
                self.update(gradients)
            return {"loss": loss}
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = keras.ops.mean(self(x) ** 2)
        self.update(tape.gradient(loss, [part.trainable_weights for part in self.parts]))
        return {"loss": loss}

    def update(self, gradients):
        for optimizer, found, part in zip(self.each_optimizer, gradients, self.parts, strict=True):
            optimizer.apply(found, part.trainable_weights)


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")  # the loss of a step of the user's own
@pytest.mark.skipif(keras.backend.backend() == "jax", reason="there a step has one optimizer's state")
def test_further_optimizers_of_a_model_go_on_too(tmp_path):
    def trained_pair(run_dir, *callbacks, second=None):
        keras.utils.set_random_seed(3)
        model = Paired()
        model.compile([keras.optimizers.Adam(0.05), second or keras.optimizers.SGD(0.05, momentum=0.9)])
        options = {"batch_size": 10, "epochs": 3, "verbose": 0, "seed": 5, "checkpoint_batches": 1}
        fitroom.fit(model, samples()[0], callbacks=list(callbacks), run_dir=run_dir, **options)
        return model

    whole = trained_pair(tmp_path / "whole", At(99, stop))
    with pytest.raises(Stop):
        trained_pair(tmp_path / "run", At(7, stop))
    for other in (keras.optimizers.Adam(0.05), keras.optimizers.SGD(0.05), keras.optimizers.RMSprop(0.05)):
        with pytest.raises(fitroom.InputError, match=r"The checkpoint is of another model: .*helper1/"):
            trained_pair(tmp_path / "run", At(99, stop), second=other)
    again = trained_pair(tmp_path / "run", At(99, stop))
    assert [int(each.iterations) for each in again.each_optimizer] == [15, 15]
    assert_same(weights_of(again), weights_of(whole), rtol=0, atol=0)


def test_further_optimizers_are_found_wherever_a_model_holds_them():
    model = dense_net()
    others = [keras.optimizers.SGD() for _ in range(4)]
    model.one, model.two = others[0], (others[1], {"within": [others[2]]})
    model.three = {"deep": (others[3], others[0])}
    assert {id(each) for each in extra_optimizers(model)} == {id(each) for each in others}
