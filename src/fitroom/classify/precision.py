"""The precision to train in: what was asked for, what the device is fast in, or what the planner chose."""

from dataclasses import dataclass

from fitroom.backends.contract import Device
from fitroom.classify.options import AUTO
from fitroom.planning.result import Plan
from fitroom.runs.job import Job

_BFLOAT16_FROM, _FLOAT16_FROM = (8, 0), (7, 0)


@dataclass(frozen=True, kw_only=True)
class Precision:
    """A Keras dtype policy, and the reason for it."""

    policy: str
    why: str

    @classmethod
    def from_job(cls, job: Job) -> "Precision":
        """The precision that `job.json` has."""
        return cls(policy=job.precision.policy or "float32", why=job.precision.why or "")

    def to_dict(self) -> dict[str, str]:
        """The fields of `job.json`."""
        return {"policy": self.policy, "why": self.why}


def choose_precision(asked: str, device: Device, compute_capability: tuple[int, int] | None) -> Precision:
    """The precision that was asked for, or the fastest one of the device.

    >>> choose_precision("auto", Device(name="cpu:0", kind="cpu", description=None), None).policy
    'float32'
    """
    if asked != AUTO:
        return Precision(policy=asked, why="asked for")
    if device.kind == "cpu":
        return Precision(policy="float32", why="fastest on a CPU")
    name = device.description or device.name
    if compute_capability is None:
        return Precision(policy="float32", why=f"the compute capability of {name} is not known")
    capability = f"{name} has compute capability {'.'.join(map(str, compute_capability))}"
    if compute_capability >= _BFLOAT16_FROM:
        return Precision(policy="mixed_bfloat16", why=f"{capability}: tensor cores for bfloat16")
    if compute_capability >= _FLOAT16_FROM:
        return Precision(policy="mixed_float16", why=f"{capability}: tensor cores for float16, not for bfloat16")
    return Precision(policy="float32", why=f"{capability}: no tensor cores for 16 bits")


def explain_precision(plan: Plan) -> str:
    """Why the planner chose its precision, compared with float32."""
    in_float32 = [option for option in plan.frontier if option.fits and option.recipe.precision == "float32"]
    if plan.recipe.precision == "float32":
        return f"mixed precision is not clearly faster on {plan.gpu}"
    if not in_float32:
        return "nothing fits in float32; weights stay in float32"
    if plan.speed is None or in_float32[0].speed is None:
        return f"fast on {plan.gpu}; weights stay in float32"
    times = plan.speed.samples_per_second / in_float32[0].speed.samples_per_second
    return f"about {times:.1f} times as fast as float32 on {plan.gpu}; weights stay in float32"
