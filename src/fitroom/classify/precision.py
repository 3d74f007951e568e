"""Which precision a device computes well in."""

from dataclasses import dataclass

from fitroom.backends.contract import Device
from fitroom.classify.options import AUTO
from fitroom.planning.result import Plan

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


def freed_why(plan: Plan) -> str:
    """Why the planner took its precision, beside float32."""
    in_float32 = [option for option in plan.frontier if option.fits and option.recipe.precision == "float32"]
    if plan.recipe.precision == "float32":
        return f"nothing shorter is clearly faster on {plan.gpu}"
    if not in_float32:
        return "in float32 nothing fits; weights stay in float32"
    if plan.speed is None or in_float32[0].speed is None:
        return f"what {plan.gpu} does well; weights stay in float32"
    times = plan.speed.samples_per_second / in_float32[0].speed.samples_per_second
    return f"about {times:.1f} times as fast as float32 on {plan.gpu}; weights stay in float32"
