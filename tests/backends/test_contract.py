"""What every backend must do: the one under test, and the fake."""

import errno
import gc
import os
import re
import weakref
from collections.abc import Iterator

import pytest

from fitroom.backends.choose import load_backend
from fitroom.backends.contract import Backend, Device, MemoryReading
from fitroom.backends.fake.backend import FakeBackend
from fitroom.errors import BackendError

NAMES = (os.environ["KERAS_BACKEND"], "fake")
MIB = 2**20
HELD_BYTES = 4 * MIB
COUNTERS = ("in_use_bytes", "peak_bytes", "reserved_bytes", "limit_bytes")


class FakeHold:
    """Bytes of the fake card, freed with this object as a tensor's are."""

    def __init__(self, backend: FakeBackend, size_bytes: int) -> None:
        weakref.finalize(self, backend.free, backend.allocate(size_bytes))


class Holder:
    """Something that refers to itself, so that only the garbage collector frees what it holds."""

    def __init__(self, held: object) -> None:
        self.held = held
        self.myself = self


def hold(backend: Backend, size_bytes: int) -> object:
    """A tensor of that size where Keras puts it."""
    if isinstance(backend, FakeBackend):
        return FakeHold(backend, size_bytes)
    import keras

    held = keras.ops.ones((size_bytes,), dtype="int8")
    if backend.name == "jax":
        held.block_until_ready()  # on a GPU the error comes only to the one who waits
    return held


def raise_ordinary_error(backend: Backend) -> None:
    if backend.name == "fake":
        raise ValueError("shapes (2, 3) and (2, 3) do not match")
    import keras

    keras.ops.matmul(keras.ops.ones((2, 3)), keras.ops.ones((2, 3)))


def in_use(reading: MemoryReading) -> int:
    assert reading.in_use_bytes is not None
    return reading.in_use_bytes


@pytest.fixture(scope="module", params=NAMES)
def backend(request) -> Backend:
    return FakeBackend() if request.param == "fake" else load_backend(request.param)


@pytest.fixture
def device(backend: Backend) -> Device:
    return backend.devices()[0]


@pytest.fixture(scope="module")
def out_of_memory(backend: Backend) -> Exception:
    """The real error, of asking for a pebibyte. Once: TensorFlow waits ten seconds before it gives up."""
    with pytest.raises(Exception) as raised:  # noqa: PT011
        hold(backend, 2**50)
    return raised.value


@pytest.fixture
def no_automatic_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_it_has_the_name_it_is_asked_for(backend, request):
    assert backend.name == request.node.callspec.params["backend"]


def test_devices_are_named_alike_on_every_backend(backend):
    devices = backend.devices()
    names = [device.name for device in devices]
    cpus = [f"cpu:{number}" for number in range(sum(name.startswith("cpu:") for name in names))]
    assert cpus == names[-len(cpus) :]
    assert len(set(names)) == len(names)
    for device in devices:
        assert re.fullmatch(r"[a-z]+:\d+", device.name)
        assert (device.kind == "gpu") == device.name.startswith("gpu:")
        assert (device.kind == "cpu") == device.name.startswith("cpu:")


def test_a_reading_is_of_whole_bytes_or_unknown(backend, device):
    held = hold(backend, HELD_BYTES)
    for each in backend.devices():
        reading = backend.read_memory(each)
        for counter in COUNTERS:
            value = getattr(reading, counter)
            assert value is None or (type(value) is int and value >= 0), (each.name, counter, value)
        assert reading.limit_bytes != 0
    del held


def test_what_is_not_counted_is_unknown_and_not_zero(backend, device):
    held = hold(backend, HELD_BYTES)
    reading = backend.read_memory(device)
    for value in (reading.in_use_bytes, reading.peak_bytes, reading.reserved_bytes):
        assert value is None or value >= HELD_BYTES
    if reading.in_use_bytes is not None and reading.peak_bytes is not None:
        assert reading.in_use_bytes <= reading.peak_bytes
    del held


def test_the_cpu_of_a_machine_with_a_card_is_read_apart_from_it(backend, device):
    if device.kind == "cpu":
        pytest.skip("no card here")
    before = backend.read_memory(backend.devices()[-1])
    held = hold(backend, HELD_BYTES)
    after = backend.read_memory(backend.devices()[-1])
    assert after.in_use_bytes is None or after.in_use_bytes < in_use(before) + HELD_BYTES
    del held


def test_reset_peak_does_what_its_flag_says(backend, device):
    hold(backend, HELD_BYTES)
    before = backend.read_memory(device)
    if not backend.can_reset_peak:
        with pytest.raises(BackendError, match="peak") as raised:
            backend.reset_peak(device)
        assert "process" in raised.value.hint
        return
    backend.reset_peak(device)
    after = backend.read_memory(device)
    if before.peak_bytes is None:
        assert after.peak_bytes is None
    else:
        assert after.peak_bytes == after.in_use_bytes
        assert after.peak_bytes <= before.peak_bytes - HELD_BYTES


def test_release_frees_what_only_a_cycle_refers_to(backend, device, no_automatic_collection):
    before = backend.read_memory(device)
    holder = Holder(hold(backend, HELD_BYTES))
    dead = weakref.ref(holder)
    del holder
    assert dead() is not None
    backend.release()
    assert dead() is None
    if before.in_use_bytes is not None:
        assert in_use(backend.read_memory(device)) < before.in_use_bytes + HELD_BYTES


def test_release_keeps_what_is_referred_to(backend, device):
    held = hold(backend, HELD_BYTES)
    backend.release()
    backend.release()
    after = backend.read_memory(device)
    assert after.in_use_bytes is None or after.in_use_bytes >= HELD_BYTES
    del held


def test_release_gives_free_blocks_back(backend, device):
    if backend.name in ("jax", "tensorflow"):
        pytest.skip("its pool never shrinks, as `release` says")
    hold(backend, 64 * MIB)
    before = backend.read_memory(device).reserved_bytes
    backend.release()
    after = backend.read_memory(device).reserved_bytes
    if before is None:
        assert after is None
    else:
        assert after is not None
        assert after <= before - 64 * MIB


def test_release_drops_compiled_functions(backend):
    if backend.name != "jax":
        pytest.skip("compiled functions are cached beyond their owners on JAX alone")
    import jax

    traces = []
    compiled = jax.jit(lambda x: traces.append(x) or x + 1)
    compiled(1.0)
    compiled(1.0)
    assert len(traces) == 1
    backend.release()
    compiled(1.0)
    assert len(traces) == 2


def test_real_out_of_memory_is_recognised(backend, out_of_memory):
    assert backend.is_out_of_memory(out_of_memory)
    hold(backend, HELD_BYTES)  # and the process goes on


def test_out_of_memory_is_recognised_behind_another_error(backend, out_of_memory):
    def on_purpose() -> None:
        raise ValueError("step 7 failed") from out_of_memory

    def by_accident() -> None:
        try:
            raise out_of_memory
        except Exception:
            raise ValueError("step 7 failed")  # noqa: B904

    def as_keras_does() -> None:
        try:
            raise resource_exhausted(backend, "no more")
        except Exception as error:
            raise ValueError(f"step 7 failed:\n{error}") from None

    def in_a_group() -> None:
        raise ValueError("step 7 failed") from ExceptionGroup("two tasks", [KeyError("other"), out_of_memory])

    for wrap in (on_purpose, by_accident, as_keras_does, in_a_group):
        with pytest.raises(ValueError, match="step 7") as raised:
            wrap()
        assert backend.is_out_of_memory(raised.value)


def test_out_of_memory_that_was_dealt_with_is_not_found_behind_another_error(backend, out_of_memory):
    def fail() -> None:
        try:
            raise out_of_memory
        except Exception:
            raise ValueError("step 7 failed for another reason") from None

    with pytest.raises(ValueError, match="step 7") as raised:
        fail()
    assert not backend.is_out_of_memory(raised.value)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_stop_that_comes_in_the_middle_of_it_stays_a_stop(backend, out_of_memory, stop):
    with pytest.raises(stop) as raised:
        raise stop from out_of_memory
    assert not backend.is_out_of_memory(raised.value)


def test_errors_that_lead_back_to_each_other_end(backend):
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert not backend.is_out_of_memory(first)


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB",
        "CUDA error: out of memory",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 16003366912 bytes.",
        "INTERNAL: failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY",
        "Exception encountered when calling Conv2D.call(). OOM when allocating tensor with shape[64,32]",
        "Failed copying input tensor from CPU to GPU: Dst tensor is not initialized.",
        "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.",
        "DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes.",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "Autotuning failed for HLO: %cudnn-conv.146 = (f32[128,147]) custom-call(...) with error: NOT_FOUND: No valid "
        "config found! [Op:__inference_part_14751]",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "INTERNAL: Failed to allocate 1048576 bytes for new constant",
        "failed to allocate memory",
    ],
)
def test_a_wrapped_error_is_recognised_by_its_text(backend, text):
    assert backend.is_out_of_memory(RuntimeError(text))


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.ENOMEM, "Out of memory"),
        MemoryError("out of memory: unable to allocate 8.00 EiB for an array"),
        RuntimeError("unable to write to file </torch_7>: No space left on device (28)"),
        RuntimeError("RESOURCE_EXHAUSTED: Received message larger than max (5 vs. 4)"),
        RuntimeError("RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 245760"),
        RuntimeError("It is possible that dataloader's workers are out of shared memory."),
        ValueError("Input 0 of layer dense is incompatible: expected axis -1 to have value 4"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_other_errors_are_not_taken_for_out_of_memory(backend, error):
    assert not backend.is_out_of_memory(error)


def test_an_ordinary_error_of_the_framework_is_not_taken_for_it(backend):
    with pytest.raises(Exception) as raised:  # noqa: PT011
        raise_ordinary_error(backend)
    assert not backend.is_out_of_memory(raised.value)


def test_the_frameworks_own_class_is_not_enough_when_something_else_ran_out(backend):
    grpc, disk = "Received message larger than max (5 vs. 4)", "run/model.h5; No space left on device"
    for text in (grpc, disk):
        assert not backend.is_out_of_memory(resource_exhausted(backend, text))


def test_the_frameworks_own_class_is_recognised_whatever_its_text(backend):
    assert backend.is_out_of_memory(resource_exhausted(backend, "no more"))


def resource_exhausted(backend: Backend, text: str) -> Exception:
    """The framework's own error, with a text of ours."""
    if backend.name == "tensorflow":
        import tensorflow as tf

        return tf.errors.ResourceExhaustedError(None, None, text)
    if backend.name == "jax":
        import jax

        return jax.errors.JaxRuntimeError(f"RESOURCE_EXHAUSTED: {text}")
    if backend.name == "torch":
        import torch

        return torch.OutOfMemoryError(text)
    from fitroom.backends.fake.out_of_memory import FakeOutOfMemoryError

    error = FakeOutOfMemoryError(1, in_use_bytes=0, capacity_bytes=0)
    error.args = (text,)
    return error


def test_a_backend_that_cannot_trace_says_where_to_go(backend):
    if backend.can_trace:
        pytest.skip("it can")
    with pytest.raises(BackendError, match="not in this version") as raised:
        backend.trace(None, None)
    assert "jax" in raised.value.hint
