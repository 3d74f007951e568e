"""A buffer is filled early on a card where the first convolution's workspace makes that come first."""

import pytest

from fitroom.backends.xla.dump import Dump, Instruction, Program, Schedule
from fitroom.backends.xla.on_card import early_fills

FILLED = "f32[64,114,114,64]"
"""For the backward pass of ResNet50's pooling."""


def program(*, dtype: str = "f32", channels: int = 3, filled: str = FILLED, fills_last: bool = True) -> Dump:
    """Pictures, a convolution to 112 x 112 x 64, and a fill after or before it."""
    instructions = {
        "pictures": Instruction("parameter", f"{dtype}[64,224,224,{channels}]", "", (), None),
        "filters": Instruction("parameter", f"{dtype}[64,7,7,{channels}]", "", (), None),
        "cudnn-conv.1": Instruction("custom-call", f"{dtype}[64,112,112,64]", "", ("pictures", "filters"), None),
        "loop_add_fusion": Instruction("fusion", FILLED, "", ("cudnn-conv.1",), "added"),
        "loop_broadcast_fusion": Instruction("fusion", filled, "", (), "filled"),
    }
    order = ["cudnn-conv.1", "loop_add_fusion", "loop_broadcast_fusion"]
    return Dump(Program(instructions, {}), Schedule(order if fills_last else order[::-1], {}), [])


def test_it_is_there_from_the_convolution_on():
    assert list(early_fills(program())) == [(range(2), 64 * 114 * 114 * 64 * 4)]


@pytest.mark.parametrize(
    "odd_one",
    [
        {"channels": 4},  # cuDNN takes these as they are
        {"dtype": "f16"},
        {"filled": "f32[64,112,112,64]"},  # no larger than the result: it comes first without a card as well
        {"filled": "f32[64,128,128,64]"},  # larger than result and workspace: it can wait
        {"fills_last": False},
    ],
)
def test_it_is_where_the_schedule_has_it_otherwise(odd_one):
    assert list(early_fills(program(**odd_one))) == []
