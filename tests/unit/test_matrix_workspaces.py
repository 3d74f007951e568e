"""Large products of float32 take cuBLAS's workspace on a card; small ones, those of half precision, all else: none."""

import pytest

from fitroom.backends.xla.dump import Dump, Instruction, Program, Schedule
from fitroom.backends.xla.on_card import matrix_workspaces
from fitroom.cards.catalogue import find_card

MIB = 2**20


def program(name: str, *operand_dtypes: str, side: int = 1024) -> Dump:
    """One instruction on squares after its operands."""
    operands = tuple(f"operand.{number}" for number in range(len(operand_dtypes)))
    made = {
        operand: Instruction("copy", f"{dtype}[{side},{side}]", "", (), None)
        for operand, dtype in zip(operands, operand_dtypes, strict=True)
    }
    made[name] = Instruction("fusion", f"f32[{side},{side}]", "", operands, "computation")
    return Dump(Program(made, {}), Schedule([*operands, name], {}), [])


@pytest.mark.parametrize(("gpu", "workspace_bytes"), [("H200", 32 * MIB), ("RTX 3060", 4 * MIB), ("T4", 4 * MIB)])
def test_a_product_of_float32_takes_what_xla_has_for_cublas(gpu, workspace_bytes):
    dump = program("gemm_fusion_dot.3", "f32", "f32")
    assert list(matrix_workspaces(dump, find_card(gpu))) == [(range(2, 3), workspace_bytes)]


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [
        ("gemm_fusion_dot.3", ("bf16", "bf16")),
        ("gemm_fusion_dot.3", ("f32", "f16")),
        ("loop_add_fusion", ("f32", "f32")),
    ],
)
def test_nothing_else_takes_any(name, dtypes):
    assert list(matrix_workspaces(program(name, *dtypes), find_card("H200"))) == []


def test_a_small_product_stays_with_xla():
    dump = program("gemm_fusion_dot.3", "f32", "f32", side=64)
    assert list(matrix_workspaces(dump, find_card("H200"))) == []
