"""The sentences about an estimate, the same in a terminal, a notebook, a figure and on a page."""

from dataclasses import dataclass

from fitroom.memory.estimate import Estimate
from fitroom.memory.timeline import Phase
from fitroom.report.shared.words import format_backend, shorten_middle
from fitroom.units import format_bytes

_METHODS = {
    "compiled": "XLA's own compiler laid out this step for the card.",
    "traced": "every tensor of the step was followed from allocation to release, without running it.",
    "measured": "the step was run on the card and the framework's allocator was read.",
}


@dataclass(frozen=True, kw_only=True)
class Size:
    """One of the three sizes of an estimate, with what it means."""

    name: str
    size_bytes: int
    meaning: str


def format_headline(estimate: Estimate) -> str:
    """Say what the estimate is of: "Xception, batch 64, float32, JAX on NVIDIA H200"."""
    backend = format_backend(estimate.backend)
    parts = [_format_task(estimate), f"batch {estimate.batch_size}", *_list_settings(estimate)]
    return f"{', '.join(parts)}, {backend} on {estimate.gpu}"


def format_shared_headline(estimate: Estimate) -> str:
    """Say what the estimate is of, without batch and backend, for a table that compares those."""
    return f"{', '.join([_format_task(estimate), *_list_settings(estimate)])} on {estimate.gpu}"


def format_verdict(estimate: Estimate) -> str:
    """Say whether training runs under the limit, and by how much."""
    required, limit = format_bytes(estimate.required_bytes), format_bytes(estimate.limit_bytes)
    if estimate.fits:
        return f"fits: {required} of {limit}"
    excess = format_bytes(estimate.required_bytes - estimate.limit_bytes)
    return f"does NOT fit: needs {required}, {excess} more than the limit of {limit}"


def list_phases(estimate: Estimate) -> dict[Phase, int | None]:
    """Return the peak of each phase that there is: predict has only a forward pass."""
    return {phase: size for phase, size in estimate.by_phase.items() if estimate.training or size is not None}


def list_sizes(estimate: Estimate) -> tuple[Size, Size, Size]:
    """Return the three sizes, each with its meaning in plain words."""
    step = "training step" if estimate.training else "step of predict"
    return (
        Size(name="peak", size_bytes=estimate.peak_bytes, meaning=f"the most in use at once during a {step}"),
        Size(
            name="needs at least",
            size_bytes=estimate.required_bytes,
            meaning="the allocator limit that holds the step",
        ),
        Size(
            name="takes of the card",
            size_bytes=estimate.device_bytes,
            meaning="what must be free on it when training starts, CUDA included",
        ),
    )


def format_peak_place(estimate: Estimate, *, width: int | None = None, ellipsis: str = "…") -> str:
    """Say where the peak is: "block2_sepconv1, backward"; the operation where there is no layer."""
    timeline = estimate.timeline
    moment = timeline.moments[timeline.peak_moment]
    place = moment.layer or f"operation {moment.name}"
    if width is not None:
        place = shorten_middle(place, width, ellipsis)
    return f"{place}, {moment.phase}" if moment.phase else place


def format_method(estimate: Estimate) -> str:
    """Say how the estimate was found, with its typical error where that is known."""
    words = f"{estimate.method}: {_METHODS[estimate.method]}"
    if estimate.typical_error is not None:
        words = f"{words} Typical error of the peak: {_format_small_percent(estimate.typical_error)}"
        if (seen := estimate.seen_error) is None:
            return f"{words}."
        within = _format_small_percent(seen.percentile_95)
        return f"{words}; 95 % of {seen.cases} measured steps of {seen.of} were within {within}."
    if estimate.method == "measured":
        return words
    return f"{words} Its typical error has not been measured."


def format_time_taken(estimate: Estimate) -> str:
    """Say how long the estimate took."""
    seconds = estimate.seconds
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def _format_task(estimate: Estimate) -> str:
    return estimate.model if estimate.training else f"{estimate.model}, predict"


def _list_settings(estimate: Estimate) -> list[str]:
    """Return the precision and every knob that was turned, as the user wrote them."""
    knobs = {name: getattr(estimate.recipe, name) for name in estimate.recipe.to_dict() if name != "precision"}
    return [estimate.precision, *(f"{name}={value}" for name, value in knobs.items())]


def _format_small_percent(fraction: float) -> str:
    return "under 0.01 %" if fraction < 0.0001 else f"{100 * fraction:.2g} %"
