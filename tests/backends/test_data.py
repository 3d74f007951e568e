"""Batches of pictures, in plain Keras and in `fitroom.fit`."""

import os
import resource
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import keras
import numpy as np
import pytest

import fitroom
from fitroom.data import Augment, batches, images, read_picture
from fitroom.data.cache import DiskCache
from fitroom.data.pixels import choose_pixel_library
from fitroom.events import listening
from fitroom.inputs import source_of
from sample_pictures import class_folders, without_opencv

COUNTS = {"daisy": 9, "rose": 8, "tulip": 6}


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FITROOM_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    return class_folders(tmp_path / "set", COUNTS)


def loaded(folder, **options):
    return images(folder, **{"image_size": 16, "batch_size": 4, "validation": 0.25} | options)


def epoch_of(split, epoch=0, start=0, **options):
    made = source_of(split, **options).epoch(epoch, start)
    found = [(batch.x, batch.y) for batch in made]
    made.close()
    return found


def assert_same(one, other):
    assert len(one) == len(other)
    for (x, y), (other_x, other_y) in zip(one, other, strict=True):
        np.testing.assert_array_equal(x, other_x)
        np.testing.assert_array_equal(y, other_y)


def is_same(one, other):
    return all(np.array_equal(x, other_x) for (x, _), (other_x, _) in zip(one, other, strict=True))


def small_model(num_classes=3):
    keras.utils.set_random_seed(5)
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((16, 16, 3)), layers.Rescaling(1 / 255), layers.Flatten(), layers.Dense(num_classes)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss, metrics=["accuracy"])
    return model


def weights_of(model):
    return [np.array(keras.ops.convert_to_numpy(variable)) for variable in model.trainable_variables]


def test_batches_are_uint8_with_the_numbers_of_their_classes(folder):
    pictures = loaded(folder)
    x, y = pictures.validation[0]
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((4, 16, 16, 3), np.uint8, (4,), np.int32)
    for (path, label), picture, number in zip(pictures.validation.files, x, y, strict=False):
        assert pictures.classes[label] == path.parent.name
        assert label == number
        np.testing.assert_array_equal(picture, read_picture(path, 16))


def test_an_epoch_has_every_picture_once_in_an_order_of_its_own(folder):
    split = loaded(folder).train
    files = {read_picture(path, 16).tobytes(): label for path, label in split.files}
    orders = []
    for epoch in range(2):
        found = [(x.tobytes(), y) for xs, ys in epoch_of(split, epoch) for x, y in zip(xs, ys, strict=True)]
        assert dict(found) == files
        assert len(found) == len(split.files)
        orders.append([x for x, _ in found])
    assert orders[0] != orders[1]


@pytest.mark.parametrize("augment", [None, True])
def test_order_and_changes_depend_on_seed_and_epoch_alone(folder, augment):
    expected = epoch_of(loaded(folder, augment=augment).train, 3)
    np.random.seed(1)
    for options in ({"workers": 1}, {"workers": 5}, {"cache": "ram"}, {"cache": "disk"}, {"cache": "disk"}):
        split = loaded(folder, augment=augment, **options).train
        epoch_of(split, 2)  # fills the cache
        assert_same(epoch_of(split, 3), expected)
        assert_same(epoch_of(split, 3, start=2), expected[2:])
    assert not is_same(epoch_of(loaded(folder, augment=augment, seed=1, validation=0).train, 3)[:2], expected[:2])


def test_training_pictures_are_varied_and_validation_never(folder):
    plain, varied = loaded(folder), loaded(folder, augment=True)
    in_order = {"shuffle": False}
    assert not is_same(epoch_of(plain.train, **in_order), epoch_of(varied.train, **in_order))
    assert not is_same(epoch_of(varied.train, 0, **in_order), epoch_of(varied.train, 1, **in_order))
    assert_same(epoch_of(plain.validation), epoch_of(varied.validation))
    assert_same(epoch_of(varied.validation, 0), epoch_of(varied.validation, 7))


@pytest.mark.parametrize(
    "augment",
    [
        Augment(zoom=0, shear=0, rotation=0, colour=0),
        Augment(flip=False, colour=0),
        Augment(flip=False, zoom=0, shear=0, rotation=0),
        Augment(rotation=180, zoom=0.9, shear=60, colour=0.9),
    ],
)
def test_a_change_is_the_same_with_and_without_opencv_but_for_rounding(folder, augment, monkeypatch):
    with_opencv = epoch_of(loaded(folder, augment=augment).train)
    assert choose_pixel_library().name == "opencv"
    without_opencv(monkeypatch)
    without = epoch_of(loaded(folder, augment=augment).train)
    assert choose_pixel_library().name == "pillow"
    monkeypatch.undo()
    choose_pixel_library.cache_clear()
    difference = np.concatenate(
        [np.abs(a.astype(int) - b) for (a, _), (b, _) in zip(with_opencv, without, strict=True)]
    )
    assert difference.mean() < 8  # the files themselves are decoded by another library


def test_an_augment_of_nothing_changes_nothing(folder):
    nothing = Augment(flip=False, zoom=0, shear=0, rotation=0, colour=0)
    assert_same(epoch_of(loaded(folder, augment=nothing).train), epoch_of(loaded(folder).train))


def test_plain_keras_trains_validates_and_predicts_on_it(folder):
    pictures = loaded(folder)
    model = small_model()
    history = model.fit(pictures.train, validation_data=pictures.validation, epochs=2, verbose=0)
    assert set(history.history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert model.predict(pictures.validation, verbose=0).shape == (len(pictures.validation.files), 3)
    first = pictures.train[0][0]
    pictures.train.on_epoch_end()
    assert not np.array_equal(pictures.train[0][0], first)
    with pytest.raises(IndexError):
        pictures.train[len(pictures.train)]


def test_weights_of_classes_and_steps_of_an_epoch_are_those_of_fit(folder):
    pictures = loaded(folder)
    source = source_of(pictures.train, class_weight={0: 1.0, 1: 2.0, 2: 3.0}, steps_per_epoch=2)
    batch = next(source.epoch(0))
    np.testing.assert_array_equal(batch.sample_weight, batch.y + 1.0)
    assert source.num_batches == 2
    whole = epoch_of(pictures.train)
    assert_same(epoch_of(pictures.train, 1, steps_per_epoch=2), whole[2:4])
    in_order = epoch_of(pictures.train, 5, shuffle=False)
    assert [label for _, ys in in_order for label in ys] == [label for _, label in pictures.train.files]


def test_a_file_that_goes_bad_after_the_scan_is_replaced_by_another_of_its_class_and_told_of(folder):
    pictures = loaded(folder)
    before = epoch_of(pictures.train, 1)
    bad, label = pictures.train.files[0]
    bad.write_bytes(bad.read_bytes()[:300])
    heard = []
    with listening(heard.append):
        found = epoch_of(pictures.train, 1)
    assert_same([((), ys) for _, ys in found], [((), ys) for _, ys in before])
    changed = [
        ys[n] for (xs, ys), (xb, _) in zip(found, before, strict=True) for n in range(len(ys)) if (xs[n] != xb[n]).any()
    ]
    assert changed == [label]
    assert_same(epoch_of(pictures.train, 1, start=2), found[2:])
    assert [skipped.file for skipped in pictures.skipped] == [bad]
    assert "truncated" in pictures.skipped[0].reason
    [event] = heard
    assert event["kind"] == "picture went bad"
    assert "is used in its place" in event["message"]


def test_a_folder_that_is_gone_is_an_error_and_no_endless_search(folder):
    pictures = loaded(folder)
    for path, _ in pictures.train.files:
        path.unlink()
    with pytest.raises(fitroom.InputError, match=r"No image of the class .* can be read any more"):
        epoch_of(pictures.train)


def test_a_run_that_stops_in_the_middle_of_an_epoch_goes_on_as_if_it_had_not(folder, tmp_path):
    def trained(run_dir, stop_at=None):
        pictures = loaded(folder, augment=True, workers=2)
        model = small_model()

        class Stop(keras.callbacks.Callback):
            seen = 0

            def on_train_batch_end(self, batch, logs=None):
                self.seen += 1
                if self.seen == stop_at:
                    raise InterruptedError

        fitroom.fit(
            model,
            pictures.train,
            validation_data=pictures.validation,
            epochs=3,
            verbose=0,
            callbacks=[Stop()],
            run_dir=run_dir,
            checkpoint_batches=1,
        )
        return weights_of(model)

    expected = trained(tmp_path / "undisturbed")
    with pytest.raises(InterruptedError):
        trained(tmp_path / "stopped", stop_at=7)
    found = trained(tmp_path / "stopped")
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_run_refuses_other_pictures_and_takes_the_same_elsewhere(folder, tmp_path):
    def train(place, epochs=1, **options):
        fitroom.fit(small_model(), loaded(place, **options).train, epochs=epochs, verbose=0, run_dir=tmp_path / "run")

    train(folder)
    folder.rename(tmp_path / "moved")
    train(tmp_path / "moved", epochs=2)
    (tmp_path / "moved" / "rose" / "000.jpg").write_bytes((tmp_path / "moved" / "rose" / "001.jpg").read_bytes())
    for options in ({}, {"seed": 4}, {"augment": True}, {"resize": "pad"}):
        with pytest.raises(fitroom.InputError, match=r"in the run, .* now"):
            train(tmp_path / "moved", epochs=3, **options)


def cached_files(tmp_path):
    return [path for path in (tmp_path / "cache" / "pictures").rglob("*") if path.is_file()]


@pytest.mark.parametrize("cache", ["ram", "disk"])
def test_what_is_kept_is_not_read_again_and_a_limit_holds(folder, tmp_path, cache, caplog):
    pictures = loaded(folder, cache=cache, validation=0)
    expected = epoch_of(pictures.train, 1)
    if cache == "disk":
        assert len(cached_files(tmp_path)) == sum(COUNTS.values())
    for path, _ in pictures.train.files:
        path.write_bytes(b"gone")
    assert_same(epoch_of(pictures.train, 1), expected)
    assert pictures.skipped == []


@pytest.mark.parametrize("cache", ["ram", "disk"])
def test_over_its_limit_a_cache_keeps_what_fits_and_says_so(folder, tmp_path, cache):
    limited = {"cache": cache, "cache_limit": 5 * 16 * 16 * 3 + 100, "validation": 0}
    pictures = loaded(folder, **limited)
    [warning] = pictures.warnings
    assert "holds 5 of 23 images (17.2 KiB); the rest are decoded in every epoch" in warning
    expected = epoch_of(loaded(folder, validation=0).train)
    assert_same(epoch_of(pictures.train), expected)
    assert_same(epoch_of(pictures.train), expected)
    if cache == "disk":
        assert len(cached_files(tmp_path)) == 5


def test_a_damaged_or_half_written_cache_on_disk_does_no_harm(folder, tmp_path):
    expected = epoch_of(loaded(folder, cache="disk", validation=0).train)
    first, second, third, *_ = cached_files(tmp_path)
    first.write_bytes(b"short")
    second.unlink()
    (third.parent / "left_by_a_kill.tmp").write_bytes(b"half")
    third.write_bytes(third.read_bytes() + b"long")
    assert_same(epoch_of(loaded(folder, cache="disk", validation=0).train), expected)


def test_room_on_disk_is_made_by_forgetting_what_is_oldest(folder, tmp_path):
    file_bytes = 16 * 16 * 3 + 4  # the pixels and their checksum
    limit = {"cache": "disk", "cache_limit": 30 * file_bytes, "validation": 0}
    epoch_of(loaded(folder, **limit).train)
    for number, path in enumerate(cached_files(tmp_path)):
        os.utime(path, (number, number))
    other = class_folders(tmp_path / "other", {"lily": 12, "orchid": 8}, size=(31, 31))
    epoch_of(loaded(other, **limit).train)
    assert len(cached_files(tmp_path)) == 30
    assert {path.stat().st_mtime for path in cached_files(tmp_path) if path.stat().st_mtime < 100} == set(range(13, 23))


def test_processes_share_a_cache_on_disk_and_one_that_is_killed_leaves_it_whole(tmp_path):
    program = f"""
import numpy as np
from pathlib import Path
from fitroom.data.cache import DiskCache
kept = DiskCache(Path({str(tmp_path)!r}), 10**9, image_size=64, resize="crop", wanted=[])
print("begun", flush=True)
while True:
    for number in range(30):
        kept.put(f"{{number:04}}", np.full((64, 64, 3), number, "uint8"))
        found = kept.get(f"{{number:04}}")
        assert found is None or (found == number).all()
"""
    children = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for child in children:
        assert child.stdout.readline() == "begun\n"
    kept = DiskCache(tmp_path, 10**9, image_size=64, resize="crop", wanted=[])
    for _ in range(20):
        for number in range(30):
            found = kept.get(f"{number:04}")
            assert found is None or (found == number).all()
    for child in children:
        assert child.poll() is None
        child.kill()
        child.wait()
    assert (kept.get("0003") == 3).all()


def test_memory_stays_bounded_however_long_the_epoch_and_slow_the_training(tmp_path, monkeypatch):
    folder = class_folders(tmp_path / "many", {"daisy": 60, "rose": 60}, size=(40, 40))
    monkeypatch.setattr(batches, "PREFETCH_BYTES", 2 * 4 * 128 * 128 * 3)  # two batches of 192 KiB
    pictures = images(folder, image_size=128, batch_size=4, validation=0)
    made = source_of(pictures.train).epoch(0)
    next(made)
    tracemalloc.start()
    for _ in made:
        threading.Event().wait(0.005)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 8 * 4 * 128 * 128 * 3  # of thirty


def test_a_host_without_memory_for_a_batch_is_a_clear_error(folder):
    pictures = loaded(folder, image_size=8000, batch_size=17)  # 3 GiB
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + 2 * 1024**3, hard))
    try:
        with pytest.raises(fitroom.HostMemoryError, match="while batch 0 of 17 samples was being made") as caught:
            next(source_of(pictures.train).epoch(0))
        with pytest.raises(fitroom.HostMemoryError):
            pictures.train[0]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert "batch_size" in caught.value.hint


def test_threads_end_when_an_epoch_is_left_early(folder):
    before = threading.active_count()
    made = source_of(loaded(folder).train).epoch(0)
    next(made)
    made.close()
    assert threading.active_count() == before
