"""The smallest limit is found by laying the step out for smaller and smaller ones."""

from dataclasses import dataclass, field

import pytest

from fitroom.cards.catalogue import find_card
from fitroom.errors import CompilerError
from fitroom.estimating.smallest_limit import PRECISION, trace_under_smallest_limit
from fitroom.memory.step import StepRequest, TracedStep
from fitroom.memory.timeline import Buffer, Moment, Timeline

MIB = 2**20
PLAIN_BYTES, LEAST_BYTES = 1000 * MIB, 300 * MIB


@dataclass
class Recomputing:
    """A compiler that recomputes to come under a limit, down to what no recomputing can spare."""

    depends_on_limit: bool = True
    gives_up: bool = False
    asked: list[int | None] = field(default_factory=list)

    def trace(self, model: object, request: StepRequest) -> TracedStep:
        self.asked.append(request.limit_bytes)
        limit_bytes = request.limit_bytes or 2 * PLAIN_BYTES
        if self.gives_up and limit_bytes < LEAST_BYTES:
            raise CompilerError("out of ideas")
        required_bytes = min(PLAIN_BYTES, max(LEAST_BYTES, limit_bytes))
        weights = Buffer(size_bytes=100 * MIB, kind="weights", layer=None, first=0, last=0)
        rest = Buffer(size_bytes=required_bytes - 100 * MIB, kind="activations", layer=None, first=0, last=0)
        moment = Moment(name="step", layer=None, phase="forward")
        return TracedStep(
            timeline=Timeline(buffers=(weights, rest), moments=(moment,)),
            required_bytes=required_bytes,
            limit_bytes=limit_bytes,
            method="compiled",
            typical_error=None,
            precision="float32",
            versions={},
            depends_on_limit=self.depends_on_limit,
        )


REQUEST = StepRequest(batch_size=1, card=find_card("T4"))


@pytest.mark.parametrize("gives_up", [False, True])
def test_the_answer_runs_and_lies_close_above_the_smallest(gives_up):
    found = trace_under_smallest_limit(Recomputing(gives_up=gives_up), None, REQUEST)
    assert found.required_bytes <= found.limit_bytes
    assert LEAST_BYTES <= found.limit_bytes <= LEAST_BYTES * (1 + 2 * PRECISION)


def test_a_step_that_is_the_same_under_every_limit_is_traced_once():
    backend = Recomputing(depends_on_limit=False)
    found = trace_under_smallest_limit(backend, None, REQUEST)
    assert found.limit_bytes == found.required_bytes == PLAIN_BYTES
    assert backend.asked == [None]
