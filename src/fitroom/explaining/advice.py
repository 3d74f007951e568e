"""The next settings to try after a failure, in the order of what they change about the result."""

from collections.abc import Iterator
from dataclasses import dataclass

from fitroom.explaining.cause import Cause
from fitroom.explaining.failure import Failure
from fitroom.recipe import EFFECTS, Effect
from fitroom.units import format_bytes


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One thing to try."""

    what: str
    """In a few words."""

    how: str
    """The command, the line of code or the variable."""

    changes: Effect = "nothing"
    """What it may change about the result of training."""

    needs_bytes: int | None = None
    """What the step needs with it, by an estimate of the user's model; None without one."""

    saves_bytes: int | None = None
    """How much less that is than the step as it was."""


REMAT = Setting(
    what="recompute blocks of layers in the backward pass instead of keeping them",
    how='fitroom.fit(model, ..., recipe=fitroom.Recipe(remat="blocks"))',
    changes=EFFECTS["remat"],
)
PRECISION = Setting(
    what="mixed precision: activations in half the bytes",
    how='keras.config.set_dtype_policy("mixed_bfloat16") before the model is built',
    changes=EFFECTS["precision"],
)
MICRO_BATCH = Setting(
    what="train the same batch in micro-batches; the size is found by itself",
    how="fitroom run train.py, or fitroom.fit(model, ...) in place of model.fit(...)",
    changes=EFFECTS["micro_batch"],
)
JIT = Setting(
    what="have XLA compile the step: it fuses operations, and recomputes by itself near the limit of the card",
    how="fitroom.fit(model, ..., recipe=fitroom.Recipe(jit=True)), or model.compile(..., jit_compile=True)",
    changes=EFFECTS["jit"],
)
KERNELS = Setting(
    what="the framework's fused kernels, which keep less for the backward pass",
    how='fitroom.fit(model, ..., recipe=fitroom.Recipe(kernels="fused"))',
    changes=EFFECTS["kernels"],
)
_SMALLER_TASK = Setting(
    what="smaller images, a smaller model, or an optimizer with less state (SGD, Lion)",
    how="fitroom plan MODEL --batch-size N --budget SIZE --allow image-size,optimizer",
    changes="the task itself",
)
_STEP = (REMAT, PRECISION, MICRO_BATCH, _SMALLER_TASK)
_STEP_OF_TORCH = (REMAT, KERNELS, PRECISION, MICRO_BATCH, _SMALLER_TASK)

_OTHER_PROCESS = (
    Setting(what="see who holds the memory, and end what is not needed", how="fitroom doctor, or nvidia-smi"),
    Setting(what="use another card", how="CUDA_VISIBLE_DEVICES=N python train.py"),
)
_LEAK = Setting(what="see whether memory grows from round to round", how="fitroom leaks script.py:function")

_IN_ONE_PIECE = {
    "torch": Setting(
        what="let PyTorch's blocks grow instead of breaking into pieces",
        how="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (since 2.9 also PYTORCH_ALLOC_CONF)",
    ),
    "tensorflow": Setting(
        what="an allocator that joins free pieces", how="TF_GPU_ALLOCATOR=cuda_malloc_async python train.py"
    ),
    "jax": Setting(
        what="give JAX more of the card from the start, in one piece",
        how="XLA_CLIENT_MEM_FRACTION=0.92 python train.py (never together with XLA_PYTHON_CLIENT_MEM_FRACTION)",
    ),
}
_NO_AUTOTUNING = {
    "torch": Setting(what="try no kernels out", how="torch.backends.cudnn.benchmark = False"),
    "tensorflow": Setting(what="try no kernels out", how="TF_CUDNN_USE_AUTOTUNE=0 python train.py"),
    "jax": Setting(what="try no kernels out", how="XLA_FLAGS=--xla_gpu_autotune_level=0 python train.py"),
}
_LEAVE_ROOM = {
    "tensorflow": Setting(
        what="leave room for cuDNN and for others: take memory as it is needed",
        how="TF_FORCE_GPU_ALLOW_GROWTH=true python train.py",
    ),
    "jax": Setting(
        what="leave room for cuDNN and for others: take less of the card",
        how="XLA_CLIENT_MEM_FRACTION=0.7 python train.py",
    ),
}
_CHECK_INSTALLATION = Setting(what="check driver, libraries and what the framework sees", how="fitroom doctor")

_WHY_CPU = Setting(what="the step ran on the CPU; if there is a GPU, see why it is not used", how="fitroom doctor")
_HOST = (
    Setting(
        what="read data while training instead of loading all of it", how="tf.data, keras.utils.PyDataset, DataLoader"
    ),
    Setting(what="fewer worker processes and a smaller shuffle buffer", how="workers=2, .shuffle(1000)"),
    Setting(what="no cache in memory", how='.cache("file") in place of .cache()'),
)
_WHO_KILLED = Setting(what="see whether the system killed it for memory", how="dmesg | grep -i -E 'oom|killed process'")
_SHARED_MEMORY = (
    Setting(what="more shared memory for a container", how="docker run --shm-size=8g (or --ipc=host)"),
    Setting(what="fewer worker processes", how="DataLoader(..., num_workers=2)"),
    Setting(
        what="hand batches over through files",
        how='torch.multiprocessing.set_sharing_strategy("file_system")',
    ),
)


def advise(failure: Failure, cause: Cause) -> tuple[Setting, ...]:
    """List the settings to try, those that change nothing about the result first."""
    return tuple(dict.fromkeys(_advise(failure, cause)))


def _advise(failure: Failure, cause: Cause) -> Iterator[Setting]:
    framework = failure.framework or ""
    if failure.kind == "shared_memory":
        yield from _SHARED_MEMORY
        return
    if cause.name == "host":
        if failure.kind == "killed":
            yield _WHO_KILLED
        yield from _narrow_dtype(failure)
        if failure.is_of_step:
            yield _WHY_CPU
            yield from _STEP
        else:
            yield from _HOST
        return
    if cause.name == "other_process":
        yield from _OTHER_PROCESS
    if cause.name == "fragmentation" and framework in _IN_ONE_PIECE:
        yield _IN_ONE_PIECE[framework]
    if cause.name == "autotuning" and framework in _NO_AUTOTUNING:
        yield _NO_AUTOTUNING[framework]
    if failure.kind == "library_out_of_memory":
        if framework in _LEAVE_ROOM:
            yield _LEAVE_ROOM[framework]
        yield from _OTHER_PROCESS[:1]
        yield _CHECK_INSTALLATION
    if cause.name == "unknown" and failure.kind == "device_out_of_memory":
        yield from _OTHER_PROCESS[:1]
        yield _LEAK
    yield from _STEP_OF_TORCH if framework == "torch" else _STEP


def _narrow_dtype(failure: Failure) -> Iterator[Setting]:
    """Where an array of float64 did not fit, say what a narrower type saves: images are bytes."""
    if (failure.dtype or "") not in ("float64", "float32") or not failure.requested_bytes:
        return
    narrow = failure.requested_bytes // (8 if failure.dtype == "float64" else 4)
    yield Setting(
        what=f"keep images as uint8, {format_bytes(narrow)} in place of {format_bytes(failure.requested_bytes)}",
        how='np.zeros(shape, dtype="uint8"), and a Rescaling layer in the model',
        saves_bytes=failure.requested_bytes - narrow,
    )
