"""Which precision a device computes well in."""

from dataclasses import dataclass

from fitroom.backends.contract import Device
from fitroom.classify.options import AUTO

_BFLOAT16_FROM, _FLOAT16_FROM = (8, 0), (7, 0)


@dataclass(frozen=True, kw_only=True)
class Precision:
    """A Keras dtype policy, and why it was taken."""

    policy: str
    why: str

    def to_dict(self) -> dict[str, str]:
        """As `job.json` has it."""
        return {"policy": self.policy, "why": self.why}


def choose_precision(asked: str, device: Device, compute_capability: tuple[int, int] | None) -> Precision:
    """The one that was asked for, or what the device does well.

    >>> choose_precision("auto", Device(name="cpu:0", kind="cpu", description=None), None).policy
    'float32'
    """
    if asked != AUTO:
        return Precision(policy=asked, why="asked for")
    if device.kind == "cpu":
        return Precision(policy="float32", why="the CPU computes best in it")
    name = device.description or device.name
    if compute_capability is None:
        return Precision(policy="float32", why=f"what {name} does well is not known here")
    capability = f"{name} has compute capability {'.'.join(map(str, compute_capability))}"
    if compute_capability >= _BFLOAT16_FROM:
        return Precision(policy="mixed_bfloat16", why=f"{capability}: bfloat16 on its tensor cores")
    if compute_capability >= _FLOAT16_FROM:
        return Precision(policy="mixed_float16", why=f"{capability}: float16 on its tensor cores, and no bfloat16")
    return Precision(policy="float32", why=f"{capability}: no tensor cores for anything shorter")
