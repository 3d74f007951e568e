"""The sentences about an estimate, the same in the terminal and on the page."""

from dataclasses import dataclass

from fitroom.memory.estimate import Estimate
from fitroom.memory.timeline import Phase
from fitroom.units import format_bytes

_BACKEND_NAMES = {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "PyTorch"}
_METHODS = {
    "compiled": "XLA's own compiler laid out this step for the card.",
    "traced": "every tensor of the step was followed from birth to death, without running it.",
    "measured": "the step was run on the card and the framework's allocator was read.",
}


@dataclass(frozen=True, kw_only=True)
class Size:
    """One of the three sizes of an estimate, with what it means."""

    name: str
    size_bytes: int
    meaning: str


def backend_name(backend: str) -> str:
    """A backend as its makers write it.

    >>> backend_name("torch"), backend_name("fake")
    ('PyTorch', 'fake')
    """
    return _BACKEND_NAMES.get(backend, backend)


def headline(estimate: Estimate) -> str:
    """What the estimate is of: "Xception, batch 64, float32, JAX on NVIDIA H200"."""
    backend = backend_name(estimate.backend)
    parts = [_task(estimate), f"batch {estimate.batch_size}", *_settings(estimate)]
    return f"{', '.join(parts)}, {backend} on {estimate.gpu}"


def shared_headline(estimate: Estimate) -> str:
    """The headline without batch and backend, for a table that compares those."""
    return f"{', '.join([_task(estimate), *_settings(estimate)])} on {estimate.gpu}"


def verdict(estimate: Estimate) -> str:
    """Whether training runs under the limit, and by how much."""
    required, limit = format_bytes(estimate.required_bytes), format_bytes(estimate.limit_bytes)
    if estimate.fits:
        return f"fits: {required} of {limit}"
    excess = format_bytes(estimate.required_bytes - estimate.limit_bytes)
    return f"does NOT fit: needs {required}, {excess} more than the limit of {limit}"


def phases(estimate: Estimate) -> dict[Phase, int | None]:
    """The peak of each phase that there is: predict only goes forward."""
    return {phase: size for phase, size in estimate.by_phase.items() if estimate.training or size is not None}


def sizes(estimate: Estimate) -> tuple[Size, Size, Size]:
    """The three sizes, each with its meaning in plain words."""
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
            meaning="so much must be free on it when training starts, CUDA included",
        ),
    )


def peak_place(estimate: Estimate, *, width: int | None = None, ellipsis: str = "…") -> str:
    """Where the peak is, "block2_sepconv1, backward"; the operation where there is no layer."""
    timeline = estimate.timeline
    moment = timeline.moments[timeline.peak_moment]
    place = moment.layer or f"operation {moment.name}"
    if width is not None:
        place = shorten_middle(place, width, ellipsis)
    return f"{place}, {moment.phase}" if moment.phase else place


def found_by(estimate: Estimate) -> str:
    """The method in words, with its typical error where that is known."""
    words = f"{estimate.method}: {_METHODS[estimate.method]}"
    if estimate.typical_error is not None:
        return f"{words} Typical error of the peak: {_small_percent(estimate.typical_error)}."
    if estimate.method == "measured":
        return words
    return f"{words} Its typical error has not been measured."


def took(estimate: Estimate) -> str:
    """How long the estimate took."""
    seconds = estimate.seconds
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def percent(part: int, whole: int) -> str:
    """A share of the whole; what is there is never shown as nothing.

    >>> percent(949, 1000), percent(1, 10_000), percent(0, 0)
    ('94.9 %', '<0.1 %', '0.0 %')
    """
    share = 100 * part / whole if whole else 0.0
    return "<0.1 %" if 0 < share < 0.05 else f"{share:.1f} %"


def shorten_middle(text: str, width: int, ellipsis: str = "…") -> str:
    """At most `width` characters; the end of a layer's path says most, so it keeps most.

    >>> shorten_middle("encoder/stage_3/block_11/attention/query", 25)
    'encode…11/attention/query'
    """
    if len(text) <= width:
        return text
    kept = max(width - len(ellipsis), 1)
    head = kept // 4
    return text[:head] + ellipsis + text[len(text) - (kept - head) :]


def _task(estimate: Estimate) -> str:
    return estimate.model if estimate.training else f"{estimate.model}, predict"


def _settings(estimate: Estimate) -> list[str]:
    """The precision and every knob that was turned, as the user wrote them."""
    knobs = {name: getattr(estimate.recipe, name) for name in estimate.recipe.to_dict() if name != "precision"}
    return [estimate.precision, *(f"{name}={value}" for name, value in knobs.items())]


def _small_percent(fraction: float) -> str:
    return "under 0.01 %" if fraction < 0.0001 else f"{100 * fraction:.2g} %"
