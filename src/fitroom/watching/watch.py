"""`fitroom.watch`: memory, utilisation and input of a training, as a context manager and as a Keras callback."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fitroom.memory.estimate import Estimate
    from fitroom.watching.callback import Watch


def watch(
    *,
    logs: bool | str | Sequence[str] | None = None,
    jsonl: str | Path | None = None,
    tensorboard: str | Path | None = None,
    plot: str | Path | None = None,
    trace: str | Path | None = None,
    snapshot: str | Path | None = None,
    estimate: "Estimate | bool | None" = None,
    limit: str | int | None = None,
    warn_at: float = 0.9,
    interval: float = 1.0,
    verbose: bool = True,
) -> "Watch":
    """Watch what a training uses: memory of each device and of the host, utilisation of the GPU, waiting for input.

    As a context manager it watches everything that trains in the block: `model.fit`, `fitroom.fit`, a loop of your own.
    As a callback it watches the `fit` that it is given to. It reads the framework's counters about once a second from a
    thread, without waiting for the device, and says on stderr when memory is nearly full; it never changes a result.

    Args:
        logs: What to add to Keras's logs at the end of each epoch, where History, CSVLogger and the progress bar see
            it: True for "memory_peak_bytes" and "input_wait", False for nothing, None for True as a callback and False
            around code in a `with` block, whose History and CSV files stay as they are; or names of
            "memory_peak_bytes",
            "memory_in_use_bytes", "memory_limit_bytes", "host_memory_bytes", "gpu_utilization", "input_wait". What is
            not known is left out.
        jsonl: A file for the readings, one JSON object a line. An older one is replaced.
        tensorboard: A folder for TensorBoard's event files.
        plot: A file for the figure of the readings: `.svg`, `.png` or `.html`.
        trace: A file in Chrome's trace format, which Perfetto (ui.perfetto.dev) shows: what was measured, and one step
            as it was estimated.
        snapshot: A file for PyTorch's own snapshot of its allocator (pytorch.org/memory_viz). Recording one costs more
            than the rest; only on CUDA.
        estimate: What `fitroom.estimate` returned for this model, for the trace and for the phases that cannot be
            measured. True makes one when training ends, False does not; None does where there is a `trace`.
        limit: What counts as the limit where it is below the allocator's: "8GiB".
        warn_at: The share of the limit at which to warn.
        interval: Seconds between readings.
        verbose: Whether a summary is printed at the end.

    >>> with fitroom.watch() as watched:  # doctest: +SKIP
    ...     model.fit(x, y)
    >>> watched.summary().peak_bytes, watched.readings[-1]["in_use_bytes"]  # doctest: +SKIP
    >>> model.fit(x, y, callbacks=[fitroom.watch(jsonl="memory.jsonl", plot="memory.svg")])  # doctest: +SKIP
    """
    from fitroom.backends.choose import current_backend
    from fitroom.watching.options import read_options

    backend = current_backend()
    from fitroom.watching.callback import Watch  # a Keras callback: first the error where the backend is not installed

    options = read_options(
        backend,
        logs=logs,
        jsonl=jsonl,
        tensorboard=tensorboard,
        plot=plot,
        trace=trace,
        snapshot=snapshot,
        estimate=estimate,
        limit=limit,
        warn_at=warn_at,
        interval=interval,
        verbose=verbose,
    )
    return Watch(backend, options)
