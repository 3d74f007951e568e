"""An estimate: what a recipe takes on a card under an allocator limit."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from fitroom.display import RichDisplay
from fitroom.memory.timeline import KINDS, PHASES, Kind, Phase, Timeline
from fitroom.recipe import Recipe

Method = Literal["compiled", "traced", "measured"]
"""compiled: the framework's own compiler laid out the step for the card. traced: lifetimes of tensors followed without
running the step. measured: run on the card."""


@dataclass(frozen=True, kw_only=True)
class LayerBytes:
    """The bytes of one layer at the peak."""

    layer: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class SeenError:
    """How wrong predicted peaks of models like the one at hand were, over steps that were measured on a card."""

    cases: int
    """How many steps that were."""

    median: float
    """Of the relative errors, without their signs."""

    percentile_95: float
    of: str
    """Which models these are, in words."""


@dataclass(frozen=True, kw_only=True)
class Estimate(RichDisplay):
    """What a recipe takes: three sizes, the split of the peak, and how it was found."""

    peak_bytes: int
    """The most that the framework's allocator has in use at once in a steady training step."""

    required_bytes: int
    """The smallest allocator limit under which training runs."""

    device_bytes: int
    """What must be free on the card: `required_bytes` plus context and libraries."""

    timeline: Timeline = field(repr=False)
    """Memory over the step; `by_kind`, `by_layer` and `by_phase` are read off it."""

    method: Method
    """How it was found."""

    typical_error: float | None
    """Median relative error of `peak_bytes`, of models like this one where there are enough; None where unmeasured."""

    model: str
    backend: str
    gpu: str
    """The card it is for."""

    limit_bytes: int
    """The allocator limit it is for."""

    batch_size: int
    precision: str
    recipe: Recipe
    seconds: float
    """How long the estimate took."""

    training: bool = True
    """False for predict."""

    versions: Mapping[str, str]
    """The packages that decide the figures."""

    notes: tuple[str, ...] = ()
    """What the reader should know, in whole sentences."""

    devices: int = 1
    """How many devices share the batch. All sizes are those of one device, the one with the largest share."""

    distribution_bytes: Mapping[str, int] = field(default_factory=dict)
    """What distribution adds on a device beside the peak, by what it is for."""

    seen_error: SeenError | None = None
    """How wrong estimates of models like this one were; None where too few were measured."""

    layers_digest: str | None = None
    """A digest of the model's layers and variables, by which measured steps of it are found."""

    uncorrected_bytes: int | None = None
    """The peak as it was predicted, where a step measured on this machine corrected it, or was measured for it."""

    predicted_with: Method | None = None
    """The method of the prediction, where the step was measured beside it; None: as `method` says."""

    @property
    def predicted_by(self) -> Method:
        """The method by which the peak was predicted, whether or not it was also measured."""
        return self.predicted_with or self.method

    @property
    def correction(self) -> float | None:
        """The share by which a measured step changed the predicted peak; None where none did."""
        if self.uncorrected_bytes is None or self.method == "measured":
            return None
        return self.peak_bytes / self.uncorrected_bytes - 1

    @property
    def by_kind(self) -> dict[Kind, int]:
        """The peak split by kind; sums to `peak_bytes`."""
        return self.timeline.by_kind()

    @property
    def by_layer(self) -> tuple[LayerBytes, ...]:
        """The peak split by layer, largest first; sums to `peak_bytes`."""
        return tuple(LayerBytes(layer=layer, bytes=size) for layer, size in self.timeline.by_layer().items())

    @property
    def by_phase(self) -> dict[Phase, int | None]:
        """The peak within each phase; None where the compiler does not tell."""
        return self.timeline.by_phase()

    @property
    def peak_layer(self) -> str | None:
        """The layer whose operation runs at the peak."""
        return self.timeline.peak_layer

    @property
    def samples_per_device(self) -> int:
        """The largest share of the batch that one device gets."""
        return -(-self.batch_size // self.devices)

    @property
    def fits(self) -> bool:
        """Whether training runs under the limit it is for."""
        return self.required_bytes <= self.limit_bytes

    def to_dict(self, *, with_timeline: bool = False) -> dict[str, Any]:
        """As plain values, for JSON. The timeline is long, and `by_*` carry its findings: it comes on request."""
        return {
            "model": self.model,
            "backend": self.backend,
            "gpu": self.gpu,
            "batch_size": self.batch_size,
            "precision": self.precision,
            "training": self.training,
            "recipe": self.recipe.to_dict(),
            "limit_bytes": self.limit_bytes,
            "fits": self.fits,
            "peak_bytes": self.peak_bytes,
            "required_bytes": self.required_bytes,
            "device_bytes": self.device_bytes,
            "by_kind": {kind: self.by_kind[kind] for kind in KINDS},
            "by_layer": [{"layer": row.layer, "bytes": row.bytes} for row in self.by_layer],
            "by_phase": {phase: self.by_phase[phase] for phase in PHASES},
            "peak_layer": self.peak_layer,
            "method": self.method,
            "typical_error": self.typical_error,
            "versions": dict(self.versions),
            "notes": list(self.notes),
            "seconds": round(self.seconds, 2),
            **({"devices": self.devices, "samples_per_device": self.samples_per_device} if self.devices > 1 else {}),
            **({"distribution_bytes": dict(self.distribution_bytes)} if self.distribution_bytes else {}),
            **({"seen_error": asdict(self.seen_error)} if self.seen_error else {}),
            **({"layers_digest": self.layers_digest} if self.layers_digest else {}),
            **({"uncorrected_bytes": self.uncorrected_bytes} if self.uncorrected_bytes is not None else {}),
            **({"predicted_with": self.predicted_with} if self.predicted_with is not None else {}),
            **({"timeline": self.timeline.to_dict()} if with_timeline else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Estimate":
        """The estimate that `to_dict(with_timeline=True)` wrote."""
        # Files of earlier versions have none of these, nor estimates of one device without a correction.
        later = ("devices", "distribution_bytes", "seen_error", "layers_digest", "uncorrected_bytes", "predicted_with")
        plain = {each.name: data[each.name] for each in fields(cls) if each.name in data or each.name not in later}
        return cls(
            **plain
            | {
                "timeline": Timeline.from_dict(data["timeline"]),
                "recipe": Recipe(**data["recipe"]),
                "notes": tuple(data["notes"]),
                "seen_error": SeenError(**data["seen_error"]) if data.get("seen_error") else None,
            }
        )
