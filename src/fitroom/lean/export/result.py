"""What came of an export."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Export:
    """A file that was written, and how it answers."""

    path: str
    format: str
    backend: str
    """The backend that wrote it."""

    int8: bool
    images: int
    """How many images it was checked on."""

    are_real: bool
    """Whether these were images of the user's; noise otherwise."""

    same_class: float
    """The share of images for which file and model find the same class most likely."""

    largest_difference: float
    """Between the outputs of file and model."""

    size_bytes: int
    model_bytes: int
    """The size of model.keras."""

    float_bytes: int
    """What the weights take in float32; the file of the model may hold the optimizer's state, too."""

    latency_seconds: float
    """Of the file, for one image on this machine's CPU."""

    quantized_share: float | None = None
    """The share of the weights in 8 bits; None where it was not asked for or the format does not tell."""

    labels: str | None = None
    """The file of class names beside it."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)
