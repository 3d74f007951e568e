"""A failure in plain sentences, for terminals, errors and notebooks alike."""

from fitroom.explaining.cause import Cause
from fitroom.explaining.failure import DeviceKind, Failure, Kind, Phase
from fitroom.units import format_bytes, used_of

_KINDS: dict[Kind, str] = {
    "device_out_of_memory": "Out of memory",
    "host_out_of_memory": "Out of main memory",
    "killed": "The process was killed",
    "library_out_of_memory": "A CUDA library failed, most often for want of memory",
    "shared_memory": "Out of shared memory",
}
_DEVICES: dict[DeviceKind, str] = {"gpu": "the GPU", "tpu": "the TPU", "mps": "the Apple GPU", "host": "the host"}
_PHASES: dict[Phase, str] = {
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "update": "in the optimizer's update",
    "autotuning": "while kernels were tried out",
    "building": "while the model was built",
    "input": "while data was read",
}
_CAUSES = {
    "step_size": "the step's own size",
    "fragmentation": "fragmentation",
    "other_process": "another process",
    "leak": "a leak",
    "autotuning": "autotuning",
    "preallocation": "preallocation",
    "host": "the host's memory",
    "unknown": "not shown by this log",
}


def headline(failure: Failure) -> str:
    """What happened, where, in one line.

    >>> headline(Failure(kind="device_out_of_memory", device="gpu", device_index=0, phase="backward", layer="conv1"))
    'Out of memory on GPU 0 in the backward pass, layer conv1'
    """
    words = [_KINDS[failure.kind]]
    if failure.device is not None and failure.kind in ("device_out_of_memory", "library_out_of_memory"):
        is_numbered = failure.device == "gpu" and failure.device_index is not None
        words.append(f"on GPU {failure.device_index}" if is_numbered else f"on {_DEVICES[failure.device]}")
    if failure.phase is not None and failure.kind != "killed":
        words.append(_PHASES[failure.phase])
    return " ".join(words) + (f", layer {failure.layer}" if failure.layer else "")


def list_facts(failure: Failure) -> list[str]:
    """The sizes that the log printed, a sentence each."""
    facts = []
    if failure.requested_bytes is not None:
        of_what = ""
        if failure.shape:
            shape = " x ".join(map(str, failure.shape))
            of_what = f" for a tensor of shape {shape}{f', {failure.dtype}' if failure.dtype else ''}"
        facts.append(f"asked for: {format_bytes(failure.requested_bytes)}{of_what}")
    if failure.needed_bytes is not None:
        facts.append(f"the compiled step needs: {format_bytes(failure.needed_bytes)}")
    capacity = failure.limit_bytes or failure.total_bytes
    if failure.in_use_bytes is not None:
        of = used_of(failure.in_use_bytes, capacity) if capacity else format_bytes(failure.in_use_bytes)
        kept = failure.reserved_bytes - failure.in_use_bytes if failure.reserved_bytes is not None else 0
        facts.append(f"in use by this process: {of}{f', and {format_bytes(kept)} kept free' if kept > 0 else ''}")
    elif capacity is not None:
        facts.append(f"the device has: {format_bytes(capacity)}")
    if failure.free_bytes is not None:
        facts.append(f"free on the device: {format_bytes(failure.free_bytes)}")
    facts += [
        f"held by {'other programs' if one.pid == -1 else f'process {one.pid}'}: {format_bytes(one.bytes)}"
        for one in failure.processes
        if one.pid is not None
    ]
    if failure.count > 1:
        facts.append(f"the log has {failure.count} failures of this kind; this is the last")
    return facts


def name_cause(cause: Cause) -> str:
    """The cause in a few words, with how sure it is.

    >>> name_cause(Cause(name="step_size", sureness="likely", why=""))
    "likely: the step's own size"
    """
    return f"{'likely: ' if cause.sureness == 'likely' else ''}{_CAUSES[cause.name]}"
