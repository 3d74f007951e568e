"""What is JAX's own about training steps.

Errors of the device are planted: a CPU runs out of no memory that JAX would count.
"""

import gc
import signal
import weakref
from dataclasses import replace
from types import SimpleNamespace

import jax
import keras
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache
from jax.experimental.sparse import BCOO
from keras import layers

import fitroom
from fitroom import ModelError, Recipe
from fitroom.backends.jax.out_of_memory import is_out_of_memory
from fitroom.backends.jax.trace.estimate import AUTOTUNING_BYTES, MARGIN_SHARE
from fitroom.backends.jax.trace.step import training_step
from fitroom.backends.jax.train import room, transfer
from fitroom.backends.jax.train.programs import keep_programs
from fitroom.backends.jax.train.state import read, reverse_groups, with_reversed_state
from fitroom.backends.jax.train.stepper import JaxStepper
from fitroom.backends.signals import defer_signals
from fitroom.batch import Batch
from fitroom.cards.catalogue import find_card
from fitroom.errors import NoRoomError, StateLostError
from fitroom.keras_model.prepared import prepare_model
from fitroom.memory.step import StepRequest
from step_cases import FIRST, LATER, compiled, dense, dense_batch, mean_of_each, state_of, tagger
from step_comparison import assert_close, assert_identical

pytestmark = pytest.mark.usefixtures("loops_as_on_a_card")
MIB = 1024**2
OUT_OF_MEMORY = jax.errors.JaxRuntimeError(
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes. (planted)"
)


def stepper_of(model):
    return JaxStepper(model, jit=None)


def with_everything():
    """Weights, slots, statistics, seeds, metrics."""
    return compiled(
        lambda x: layers.Dense(3)(layers.Dropout(0.4, seed=3)(layers.BatchNormalization()(layers.Dense(8)(x)))),
        loss="mse",
        metrics=["mae"],
    )


def plant(stepper, run):
    """Have `run(compiled, state, data)` called in place of the stepper's compiled programs."""
    kept = stepper._programs._kept
    for key, program in kept.items():
        kept[key] = replace(program, compiled=lambda state, data, real=program.compiled: run(real, state, data))


def raise_at_the_call(compiled, state, data):
    raise OUT_OF_MEMORY


def alive(model):
    return not any(variable._value.is_deleted() for variable in [*model.variables, *model.optimizer.variables])


# Programs.


@pytest.fixture
def num_compiled(monkeypatch):
    """Counts what is compiled ahead of time."""
    count, compiler = SimpleNamespace(value=0), jax.stages.Lowered.compile

    def counted(lowered, *arguments, **options):
        count.value += 1
        return compiler(lowered, *arguments, **options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", counted)
    return count


def test_a_shape_is_compiled_once_also_where_memory_ran_out_between(num_compiled):
    stepper = stepper_of(dense())
    for size, micro_batch, expected in (
        (FIRST, FIRST, 1),
        (FIRST, FIRST, 1),
        (FIRST, 7, 2),
        (FIRST, 7, 2),
        (LATER, FIRST, 3),
        (FIRST, FIRST + 1, 3),
    ):
        stepper.train(dense_batch(size), micro_batch)
        assert num_compiled.value == expected
    stepper.forget()
    stepper.train(dense_batch(FIRST), 7)
    assert num_compiled.value == 3


def test_programs_are_kept_for_the_next_training_of_a_model_until_it_is_compiled_anew(num_compiled):
    model = dense()
    for _ in range(2):
        stepper_of(model).train(dense_batch(FIRST), 7)
        stepper_of(model).train(dense_batch(FIRST), FIRST)
    assert num_compiled.value == 2
    model.compile("adam", "mae")
    stepper_of(model).train(dense_batch(FIRST), 7)
    assert num_compiled.value == 3
    model.get_layer("first").trainable = False
    model.compile("adam", "mae")
    stepper_of(model).train(dense_batch(FIRST), 7)
    assert num_compiled.value == 4


def test_a_model_that_nobody_needs_goes_with_all_of_its_programs():
    model = dense()
    stepper_of(model).train(dense_batch(FIRST), 7)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_step_in_parts_is_one_call_of_one_program():
    stepper, calls = stepper_of(dense()), []
    stepper.train(dense_batch(FIRST), 3)
    plant(stepper, lambda compiled, *arguments: calls.append(1) or compiled(*arguments))
    stepper.train(dense_batch(FIRST), 3)
    assert len(calls) == 1


def test_variables_hold_new_values_and_old_ones_are_given_up():
    model = dense(optimizer="adam")
    stepper = stepper_of(model)
    stepper.train(dense_batch(FIRST), 7)
    old = [variable._value for variable in model.trainable_variables]
    stepper.train(dense_batch(FIRST), 7)
    assert all(array.is_deleted() for array in old)
    assert alive(model)


def test_a_batch_outlives_the_steps_that_it_is_given_to():
    stepper, batch = stepper_of(dense()), dense_batch(FIRST).map(jax.device_put)
    for micro_batch in (FIRST, 7):
        stepper.train(batch, micro_batch)
        stepper.test(batch, micro_batch)
    np.testing.assert_array_equal(batch.x, dense_batch(FIRST).x)


def test_two_variables_may_hold_one_array():
    model, twin = dense(optimizer="adam"), dense(optimizer="adam")
    for each in (model, twin):
        stepper_of(each).prepare(dense_batch(FIRST))
        zeros = [v for v in each.optimizer.variables if v.shape == (6, 8)]
        zeros[1].assign(zeros[0] if each is model else np.zeros((6, 8)))
    assert zeros is not None
    assert len({id(variable._value) for variable in model.optimizer.variables}) < len(model.optimizer.variables)
    for each in (model, twin):
        stepper_of(each).train(dense_batch(FIRST), 7)
    assert_identical(state_of(model), state_of(twin))


# Out of memory.


@pytest.mark.parametrize("micro_batch", [FIRST, 7])
@pytest.mark.parametrize("when", ["compiling", "calling"])
def test_out_of_memory_before_a_program_runs_changes_nothing(when, micro_batch, monkeypatch):
    model, twin = with_everything(), with_everything()
    batches = dense_batch(FIRST), dense_batch(LATER)
    stepper = stepper_of(model)
    stepper.train(batches[0], FIRST)
    before = state_of(model)
    if when == "compiling":
        with monkeypatch.context() as patch:
            patch.setattr(jax.stages.Lowered, "compile", lambda *_, **__: raise_at_the_call(None, None, None))
            with pytest.raises(jax.errors.JaxRuntimeError, match="planted") as caught:
                stepper.train(batches[1], micro_batch)
    else:
        stepper.train(batches[0], micro_batch)
        before = state_of(model)
        plant(stepper, raise_at_the_call)
        with pytest.raises(jax.errors.JaxRuntimeError, match="planted") as caught:
            stepper.train(batches[0], micro_batch)
    assert is_out_of_memory(caught.value)
    assert_identical(state_of(model), before)
    stepper.forget()
    stepper.train(batches[1], 4)
    other = stepper_of(twin)
    other.train(batches[0], FIRST)
    if when == "calling":
        other.train(batches[0], micro_batch)
    other.train(batches[1], 4)
    assert_identical(state_of(model), state_of(twin))


def test_an_error_told_to_whoever_waits_is_a_lost_state_where_inputs_were_given_up(monkeypatch):
    model = dense()
    stepper = stepper_of(model)
    stepper.train(dense_batch(FIRST), 7)
    wait, given_up = jax.block_until_ready, []

    def fail(values):
        if given_up:
            raise OUT_OF_MEMORY
        return wait(values)

    plant(stepper, lambda compiled, *arguments: given_up.append(1) or compiled(*arguments))
    monkeypatch.setattr(jax, "block_until_ready", fail)
    with pytest.raises(StateLostError, match="planted") as caught:
        stepper.train(dense_batch(FIRST), 7)
    assert "checkpoint" in caught.value.hint
    assert not is_out_of_memory(caught.value)


def test_an_error_told_to_whoever_waits_is_raised_as_it_is_where_inputs_are_kept(monkeypatch):
    model = with_everything()
    stepper = stepper_of(model)
    stepper.test(dense_batch(FIRST), 7)
    before, wait, ran = state_of(model), jax.block_until_ready, []

    def fail(values):
        if ran:
            raise OUT_OF_MEMORY
        return wait(values)

    plant(stepper, lambda compiled, *arguments: ran.append(1) or compiled(*arguments))
    monkeypatch.setattr(jax, "block_until_ready", fail)
    with pytest.raises(jax.errors.JaxRuntimeError, match="planted") as caught:
        stepper.test(dense_batch(FIRST), 7)
    assert is_out_of_memory(caught.value)
    assert_identical(state_of(model), before)


def device_with(**counted):
    stats = {"bytes_limit": 100 * MIB, "bytes_in_use": 40 * MIB, "pool_bytes": 100 * MIB} | counted
    return SimpleNamespace(platform="gpu", id=0, memory_stats=lambda: stats)


@pytest.mark.parametrize(
    ("needed_bytes", "counted", "fits"),
    [
        (60 * MIB, {}, True),
        (60 * MIB + 1, {}, False),
        (50 * MIB, {"largest_free_block_bytes": 30 * MIB}, False),
        (30 * MIB, {"largest_free_block_bytes": 30 * MIB}, True),
        (50 * MIB, {"largest_free_block_bytes": 0}, True),  # it does not tell
        (50 * MIB, {"largest_free_block_bytes": 10 * MIB, "pool_bytes": 60 * MIB}, True),  # the pool can grow
        (500 * MIB, {"bytes_limit": 0}, True),  # no limit known
        (None, {}, True),
    ],
)
def test_room_is_what_the_allocator_could_give_as_one_block(needed_bytes, counted, fits, monkeypatch):
    monkeypatch.setattr(room.jax, "local_devices", lambda: [device_with(**counted)])
    if fits:
        room.check_room(needed_bytes)
    else:
        with pytest.raises(NoRoomError):
            room.check_room(needed_bytes)


def test_memory_that_is_given_back_a_moment_later_is_waited_for(monkeypatch):
    in_use = iter([100 * MIB, 100 * MIB, 0])
    device = SimpleNamespace(memory_stats=lambda: {"bytes_limit": 100 * MIB, "bytes_in_use": next(in_use)})
    monkeypatch.setattr(room.jax, "local_devices", lambda: [device])
    room.check_room(MIB)
    assert next(in_use, None) is None


@pytest.fixture
def sent(monkeypatch):
    """The sizes of batches that were moved to what passes for a card, in that order."""
    moved = []
    move = transfer._put
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(transfer, "_put", lambda batch: moved.append(batch.size) or move(batch))
    return moved


@pytest.mark.parametrize(("spare_bytes", "is_sent"), [(0, True), (-1, False)])
def test_the_next_batch_is_sent_before_a_step_if_that_has_room(spare_bytes, is_sent, sent, monkeypatch):
    stepper, first, second = stepper_of(dense()), dense_batch(FIRST), dense_batch(LATER)
    stepper.train(first, 7)
    [program] = stepper._programs._kept.values()
    next_bytes = second.x.nbytes + second.y.nbytes
    card = device_with(bytes_limit=program.needed_bytes + next_bytes + spare_bytes, bytes_in_use=0, pool_bytes=0)
    monkeypatch.setattr(jax, "local_devices", lambda: [card])
    for batch in (first, second):
        stepper.prefetch(batch)
    sent.clear()
    plant(stepper, lambda compiled, *arguments: sent.append("step") or compiled(*arguments))
    stepper.train(first, 7)
    expected = [first.size, *([second.size] if is_sent else []), "step"]
    assert sent == expected
    stepper.train(second, 7)
    assert sent == [*expected, *([] if is_sent else [second.size])]  # another shape: another program, not planted


def test_what_was_sent_goes_when_it_lies_in_the_way_of_the_step(sent, monkeypatch):
    stepper, first, second = stepper_of(dense()), dense_batch(FIRST), dense_batch(LATER)
    stepper.train(first, 7)
    [program] = stepper._programs._kept.values()

    def counted():
        limit_bytes = 100 * program.needed_bytes
        return {
            "bytes_limit": limit_bytes,
            "pool_bytes": limit_bytes,
            "bytes_in_use": program.needed_bytes,
            "largest_free_block_bytes": program.needed_bytes - (second.size in sent),
        }

    for batch in (first, second):
        stepper.prefetch(batch)
    monkeypatch.setattr(jax, "local_devices", lambda: [SimpleNamespace(platform="gpu", id=0, memory_stats=counted)])
    stepper._transfer.take(first)
    stepper._transfer.prefetch_next(program.needed_bytes)
    assert second.size in sent
    assert stepper._transfer._prefetched is None


def test_a_batch_that_runs_out_of_memory_on_its_way_stays_on_the_host(monkeypatch):
    """The error is planted."""
    stepper, first, second = stepper_of(dense()), dense_batch(FIRST), dense_batch(LATER)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [device_with()])
    for batch in (first, second):
        stepper.prefetch(batch)
    stepper._transfer.take(first)
    monkeypatch.setattr(stepper._transfer, "put", lambda batch: raise_at_the_call(None, None, None))
    stepper._transfer.prefetch_next(0)
    assert stepper._transfer._prefetched is None


@pytest.mark.parametrize("jit", [True, False])
def test_on_the_cpu_no_batch_is_held_on_to(jit):
    stepper = JaxStepper(dense(), jit=jit)
    for size in (FIRST, LATER):
        batch = dense_batch(size)
        stepper.prefetch(batch)
        gone = weakref.ref(batch)
        stepper.train(batch, 7)
        del batch
        gc.collect()
        assert gone() is None


def test_a_pause_gives_back_what_was_sent(sent, monkeypatch):
    monkeypatch.setattr(jax, "local_devices", lambda: [device_with()])
    stepper, first, second = stepper_of(dense()), dense_batch(FIRST), dense_batch(LATER)
    for batch in (first, second):
        stepper.prefetch(batch)
    stepper.train(first, 7)
    assert stepper._transfer._prefetched[0] is second
    stepper.pause()
    assert stepper._transfer._prefetched is None
    assert stepper._transfer.queue.next_after(first) is None


def test_a_program_that_finds_no_room_does_not_run(monkeypatch):
    model = with_everything()
    stepper = stepper_of(model)
    stepper.train(dense_batch(FIRST), 7)
    before, ran = state_of(model), []
    plant(stepper, lambda *_: ran.append(1))
    full = device_with(bytes_in_use=100 * MIB - 8)
    with monkeypatch.context() as patch:
        patch.setattr(jax, "local_devices", lambda: [full])
        with pytest.raises(NoRoomError, match=r"needs .* 8 B are free on gpu:0") as caught:
            stepper.train(dense_batch(FIRST), 7)
    assert is_out_of_memory(caught.value)
    assert not ran
    assert_identical(state_of(model), before)


def test_where_memory_is_free_but_scattered_the_state_is_moved_together(monkeypatch):
    model, twin = with_everything(), with_everything()
    stepper, plain = stepper_of(model), stepper_of(twin)
    for each in (stepper, plain):
        each.train(dense_batch(FIRST), 7)
    [program] = stepper._programs._kept.values()
    weight = model.trainable_variables[0]
    scattered = weight._value

    def counted():
        largest_bytes = program.needed_bytes - (1 if weight._value is scattered else 0)
        limit_bytes = 2 * program.needed_bytes
        return {
            "bytes_limit": limit_bytes,
            "pool_bytes": limit_bytes,
            "bytes_in_use": program.needed_bytes // 2,
            "largest_free_block_bytes": largest_bytes,
        }

    card = SimpleNamespace(platform="gpu", id=0, memory_stats=counted)
    with monkeypatch.context() as patch:
        patch.setattr(jax, "local_devices", lambda: [card])
        stepper.train(dense_batch(FIRST), 7)
    plain.train(dense_batch(FIRST), 7)
    assert_identical(state_of(model), state_of(twin))


@pytest.mark.parametrize(
    ("is_held", "expected"),
    [
        pytest.param(False, ["step", "step", "step", "waited", "step", "waited"], id="given back at once"),
        pytest.param(True, ["step", "step", "waited", "step", "waited", "step"], id="held until it is done"),
    ],
)
def test_a_step_is_given_to_the_card_while_one_runs_unless_that_has_its_room(is_held, expected, monkeypatch):
    model, twin = with_everything(), with_everything()
    stepper, plain = stepper_of(model), stepper_of(twin)
    for _ in range(4):
        plain.train(dense_batch(FIRST), 7)
    [program] = plain._programs._kept.values()

    def counted():
        held_bytes = program.needed_bytes if is_held and stepper._under_way is not None else 0
        return {"bytes_limit": program.needed_bytes, "pool_bytes": 0, "bytes_in_use": held_bytes}

    monkeypatch.setattr(jax, "local_devices", lambda: [SimpleNamespace(platform="gpu", id=0, memory_stats=counted)])
    wait, events = jax.block_until_ready, []

    def noted(values):
        if isinstance(values, dict):  # the logs of a step
            events.append("waited")
        return wait(values)

    monkeypatch.setattr(jax, "block_until_ready", noted)
    stepper.train(dense_batch(FIRST), 7)
    events.append("step")
    plant(stepper, lambda compiled, *arguments: events.append("step") or compiled(*arguments))
    for _ in range(3):
        stepper.train(dense_batch(FIRST), 7)
    assert events == expected
    assert_identical(state_of(model), state_of(twin))


def test_an_error_of_a_step_under_way_is_a_lost_state(monkeypatch):
    model = dense()
    stepper = stepper_of(model)
    monkeypatch.setattr(jax, "local_devices", lambda: [device_with()])
    for _ in range(2):
        stepper.train(dense_batch(FIRST), 7)
    wait = jax.block_until_ready

    def fail(values):
        if isinstance(values, dict):  # the logs of the step before. PLANTED
            raise OUT_OF_MEMORY
        return wait(values)

    monkeypatch.setattr(jax, "block_until_ready", fail)
    with pytest.raises(StateLostError, match="planted"):
        stepper.train(dense_batch(FIRST), 7)


def test_what_a_program_needs_grows_with_the_samples_at_once():
    stepper = stepper_of(compiled(lambda x: layers.Dense(3)(layers.Dense(4000, activation="tanh")(x)), loss="mse"))
    for micro_batch in (200, 50):
        stepper.train(dense_batch(200), micro_batch)
    whole, cut = (program.needed_bytes for program in stepper._programs._kept.values())
    assert cut + 100 * 4000 * 4 < whole


def test_parts_that_follow_each_other_on_a_cpu_come_to_what_a_loop_of_them_does(monkeypatch):
    def trained():
        model = compiled(lambda x: layers.Dense(3)(layers.BatchNormalization()(layers.Dense(8)(x))), loss="mse")
        stepper = stepper_of(model)
        for _ in range(2):
            stepper.train(dense_batch(20), 6)
        [program] = stepper._programs._kept.values()
        return state_of(model), "while(" in program.compiled.as_text()

    looped, has_loop = trained()
    monkeypatch.setattr("fitroom.backends.jax.train.stepper.MOST_UNROLLED", 4)
    unrolled, has_none = trained()
    assert (has_loop, has_none) == (True, False)
    assert_close(unrolled, looped)


# Programs on disk.


def test_programs_for_a_card_are_kept_on_disk_unless_the_user_says_where(tmp_path, monkeypatch):
    settings = ("jax_compilation_cache_dir", "jax_compilation_cache_max_size")
    before = {name: getattr(jax.config, name) for name in settings}
    quick = jax.config.jax_persistent_cache_min_compile_time_secs
    try:
        jax.config.update("jax_compilation_cache_dir", None)  # conftest.py said where
        keep_programs(tmp_path / "cpu")
        assert jax.config.jax_compilation_cache_dir is None, "not for the CPU"
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
        keep_programs(tmp_path / "card")
        keep_programs(tmp_path / "later")
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        compilation_cache.reset_cache()
        jax.jit(lambda x: x * 17 + 4)(np.ones(3, "float32"))
        [of_this_limit] = (tmp_path / "card").iterdir()
        assert list(of_this_limit.iterdir())
        assert not (tmp_path / "later").exists()
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", quick)
        compilation_cache.reset_cache()


# Interrupts, and traces that break off.


def test_a_signal_waits_until_the_step_is_done():
    model, twin = with_everything(), with_everything()
    batch = dense_batch(FIRST)
    stepper = stepper_of(model)
    stepper.train(batch, 7)

    def interrupted(compiled, state, data):
        results = compiled(state, data)
        signal.raise_signal(signal.SIGINT)
        return results

    plant(stepper, interrupted)
    with pytest.raises(KeyboardInterrupt):
        stepper.train(batch, 7)
    assert alive(model)
    other = stepper_of(twin)
    for _ in range(2):
        other.train(batch, 7)
    assert_identical(state_of(model), state_of(twin))


def test_held_back_signals_go_to_the_handlers_there_were():
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        with defer_signals():
            signal.raise_signal(signal.SIGTERM)
            assert not came
        assert came == [signal.SIGTERM]
        signal.raise_signal(signal.SIGTERM)
        assert len(came) == 2
    finally:
        signal.signal(signal.SIGTERM, before)


class RaisesOnce(keras.losses.Loss):
    armed = False

    def call(self, y_true, y_pred):
        if self.armed:
            raise ValueError("planted in the trace")
        return keras.ops.mean(keras.ops.square(y_true - y_pred), axis=-1)


@pytest.mark.parametrize("micro_batch", [FIRST, 7])
def test_a_trace_that_breaks_off_leaves_no_losses_behind(micro_batch):
    loss = RaisesOnce()
    model = dense(loss=loss, first={"activity_regularizer": "l2"})
    stepper = stepper_of(model)
    stepper.train(dense_batch(LATER), 4)
    before = state_of(model)
    loss.armed = True
    with pytest.raises(ValueError, match="planted"):
        stepper.train(dense_batch(FIRST), micro_batch)
    loss.armed = False
    assert_identical(state_of(model), before)
    assert not any(isinstance(each, jax.core.Tracer) for each in model.losses)
    stepper.train(dense_batch(FIRST), micro_batch)


def test_variables_that_an_earlier_fit_took_along_are_missed():
    model = dense()
    model.trainable_variables[0]._value = None  # as Keras leaves it when the first step of `fit` dies
    with pytest.raises(ModelError, match="no values") as caught:
        stepper_of(model).train(dense_batch(FIRST), FIRST)
    assert "load its weights" in caught.value.hint


# Without compiling.


@pytest.mark.parametrize("micro_batch", [FIRST, 7])
def test_without_jit_a_step_is_the_same_step(micro_batch, num_compiled):
    model, twin = with_everything(), with_everything()
    stepper, batch = JaxStepper(model, jit=False), dense_batch(FIRST)
    for _ in range(2):
        stepper.train(batch, micro_batch)
    assert num_compiled.value == 0
    other = stepper_of(twin)
    for _ in range(2):
        other.train(batch, micro_batch)
    found, expected = state_of(model), state_of(twin)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


# Estimates.


def convolutions():
    """Much to remember for each sample, and weights that count."""
    x = inputs = keras.Input((24, 24, 3))
    for _ in range(3):
        x = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    x = layers.Dense(512)(layers.Flatten()(layers.MaxPooling2D(4)(x)))
    model = keras.Model(inputs, layers.Dense(10, activation="softmax")(x))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def estimate(model, micro_batch):
    return fitroom.estimate(model, 96, recipe=Recipe(micro_batch=micro_batch), gpu="T4")


def test_a_small_step_requires_room_for_xla_to_try_its_kernels():
    found = estimate(convolutions(), 48)
    resting_bytes = sum(found.by_kind[kind] for kind in ("weights", "optimizer", "input"))
    assert found.peak_bytes < resting_bytes + AUTOTUNING_BYTES <= found.required_bytes


@pytest.mark.usefixtures("kernels_are_not_tried")
@pytest.mark.parametrize("compiled_for_a_card", [True, False])
def test_an_estimate_of_a_cut_batch_has_one_sum_of_gradients_and_fewer_activations(compiled_for_a_card, monkeypatch):
    if not compiled_for_a_card:
        monkeypatch.setattr("fitroom.backends.jax.trace.estimate.compiler_version", lambda: None)
    model = convolutions()
    weights_bytes = sum(variable.value.nbytes for variable in model.trainable_variables)
    batch_bytes = 96 * (24 * 24 * 3 * 4 + 4)
    found = {micro_batch: estimate(model, micro_batch) for micro_batch in (96, 48, 16)}
    assert {each.method for each in found.values()} == {"compiled" if compiled_for_a_card else "traced"}
    assert found[16].peak_bytes < found[48].peak_bytes < found[96].peak_bytes
    assert found[16].required_bytes < found[48].required_bytes
    for micro_batch in (48, 16):
        each = found[micro_batch]
        forward = [n for n, moment in enumerate(each.timeline.moments) if moment.phase == "forward" and moment.layer]
        held = each.timeline.usage_bytes_of("gradients")
        assert min(held[n] for n in forward) >= weights_bytes
        assert held[forward[0]] < 1.1 * weights_bytes
        assert batch_bytes <= each.by_kind["input"] < 1.1 * batch_bytes
    for micro_batch, further in {96: 3, 48: 2, 16: 2}.items():  # whole it may be Keras's step, which leaves a gap
        each = found[micro_batch]
        unforeseen_bytes = int(MARGIN_SHARE * each.peak_bytes)
        assert each.required_bytes - each.peak_bytes == further * batch_bytes + unforeseen_bytes
    activations = {micro_batch: max(each.timeline.usage_bytes_of("activations")) for micro_batch, each in found.items()}
    assert activations[16] < 0.5 * activations[48]


@pytest.mark.usefixtures("kernels_are_not_tried")
@pytest.mark.parametrize(("optimizer", "further"), [("adam", 3), ("sgd", 2)])
def test_slots_of_an_optimizer_come_to_lie_behind_the_first_batches_and_leave_a_gap(optimizer, further, monkeypatch):
    monkeypatch.setattr("fitroom.backends.jax.trace.estimate.compiler_version", lambda: None)
    model = convolutions()
    model.compile(optimizer, "sparse_categorical_crossentropy")
    found = fitroom.estimate(model, 96, gpu="T4")
    beside_bytes = found.required_bytes - found.peak_bytes - int(MARGIN_SHARE * found.peak_bytes)
    assert beside_bytes == further * 96 * (24 * 24 * 3 * 4 + 4)


def test_a_model_that_cannot_be_cut_is_not_estimated_as_if_it_could():
    class OwnStep(keras.Model):
        def train_step(self, state, data):
            return super().train_step(state, data)

    with pytest.raises(ModelError, match="train_step"):
        fitroom.estimate(dense(kind=OwnStep), 20, recipe=Recipe(micro_batch=5), gpu="T4")


def test_a_sparse_batch_says_why_it_stays_whole():
    inputs = keras.Input((4,), sparse=True)
    model = keras.Model(inputs, layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    stepper, x = stepper_of(model), BCOO.fromdense(np.eye(4, dtype="float32"))
    stepper.train(Batch(x=x, y=np.ones((4, 1), "float32")), 4)
    assert "sparse" in stepper.why_whole()
    with pytest.raises(ModelError, match="sparse"):
        stepper.train(Batch(x=x, y=np.ones((4, 1), "float32")), 2)


def test_own_losses_and_masks_are_estimated_without_data():
    for model in (dense(loss=mean_of_each), tagger()):
        weights_bytes = sum(variable.value.nbytes for variable in model.trainable_variables)
        found = fitroom.estimate(model, 20, recipe=Recipe(micro_batch=7), gpu="T4")
        assert max(found.timeline.usage_bytes_of("gradients")) >= weights_bytes


def test_an_estimate_is_of_the_very_program_that_is_trained_with():
    model = with_everything()
    request = StepRequest(batch_size=FIRST, card=find_card("T4"), recipe=Recipe(micro_batch=7))
    with prepare_model(model, request) as ready:
        estimated = training_step(ready)
        program = str(estimated.jitted.trace(*estimated.specs).jaxpr)
    stepper, batch = stepper_of(model), dense_batch(FIRST).map(jax.device_put)
    stepper.train(batch, 7)
    (cut,) = stepper._cuts.values()
    trained = jax.jit(with_reversed_state(cut.train)).trace(read(reverse_groups(stepper._variables)), batch.data())
    assert program == str(trained.jaxpr)


def test_what_the_last_layer_is_trained_with_comes_first_and_every_variable_gets_its_own_value():
    batch = dense_batch(FIRST)
    models = [with_everything() for _ in range(2)]
    models[0].train_on_batch(batch.x, batch.y)
    stepper = stepper_of(models[1])
    models[1].reset_metrics()
    stepper.train(batch, FIRST)
    assert_close(state_of(models[1]), state_of(models[0]))
    [program] = stepper._programs._kept.values()
    weights = program.compiled.args_info[0][0][0]
    assert [each.shape for each in weights] == [tuple(each.shape) for each in models[1].trainable_variables[::-1]]
