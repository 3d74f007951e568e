"""From XLA's account of a step to a timeline.

The dumps are written by hand, in the form of the real ones: a convolution with scratch memory, a relu, their backward
pass, an update in place. Sizes are multiples of 256, as XLA places them.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from fitroom.backends.jax.trace.attribution import JaxScopeReader
from fitroom.backends.xla.attribution import Argument, Attribution
from fitroom.backends.xla.dump import Value, dumped_bytes, read_dump
from fitroom.backends.xla.timeline import timeline_of
from fitroom.memory.timeline import NO_LAYER

SCOPES = JaxScopeReader(layer_names=frozenset({"conv", "relu", "inner"}), training=True)
ARGUMENTS = (
    Argument(size_bytes=1024, kind="weights", layer="conv"),
    Argument(size_bytes=1024, kind="optimizer", layer="conv"),
    Argument(size_bytes=2048, kind="input", layer=None),
)

PROGRAM = """\
HloModule jit_call, is_scheduled=true

FileNames
1 "train.py"

%fused_max (param_0: f32[1024]) -> f32[1024] {
  %param_0 = f32[1024]{0} parameter(0)
  %constant.9 = f32[] constant(0), metadata={op_name="jit(call)/call_exported"}
  ROOT %max.1 = f32[1024]{0} maximum(%param_0, %constant.9), metadata={op_name="jit(train_step)/jvp(inner)/relu/max"}
}

ENTRY %main.1 (w.1: f32[256], m.1: f32[256], x.1: f32[512]) -> (f32[256], f32[256]) {
  %w.1 = f32[256]{0} parameter(0), metadata={op_name="args[0][0][0]"}
  %x.1 = f32[512]{0} parameter(2), metadata={op_name="args[1][0]"}
  %copy.1 = f32[256]{0} copy(%w.1)
  %conv.1 = (f32[1024]{0}, u8[2048]{0}) custom-call(%x.1, %copy.1), custom_call_target="__cudnn$convForward", \
metadata={op_name="jit(train_step)/jvp(conv)/conv_general_dilated"}
  %get-tuple-element.1 = f32[1024]{0} get-tuple-element(%conv.1), index=0
  %fusion.1 = f32[1024]{0} fusion(%get-tuple-element.1), kind=kLoop, calls=%fused_max
  %fusion.1.remat = f32[1024]{0} fusion(%get-tuple-element.1), kind=kLoop, calls=%fused_max
  %constant.1 = f32[] constant(0)
  %broadcast.1 = f32[1024]{0} broadcast(%constant.1), dimensions={}
  %scatter.1 = f32[1024]{0} fusion(%broadcast.1, %fusion.1.remat), kind=kLoop, calls=%fused_scatter, \
metadata={op_name="jit(train_step)/transpose(jvp(inner))/relu/select_and_scatter_add"}
  %m.1 = f32[256]{0} parameter(1), metadata={op_name="args[0][2][0]"}
  %update.1 = f32[256]{0} fusion(%w.1, %m.1, %scatter.1), kind=kLoop, calls=%fused_update, \
metadata={op_name="jit(train_step)/adam/sub"}
  ROOT %tuple.1 = (f32[256]{0}, f32[256]{0}) tuple(%update.1, %m.1)
}
"""

LIVE_RANGE = """\
HloLiveRange (max 13):
  InstructionSequence:
    0:w.1
    1:x.1
    2:copy.1
    3:conv.1
    4:get-tuple-element.1
    5:fusion.1
    6:fusion.1.remat
    7:constant.1
    8:broadcast.1
    9:scatter.1
    10:m.1
    11:update.1
    12:tuple.1
  BufferLiveRange:
    w.1{}:0-11
    x.1{}:0-13
    m.1{}:0-13
    copy.1{}:2-3
    conv.1{}:3-4
    conv.1{0}:3-6
    conv.1{1}:3-3
    fusion.1{}:5-6
    fusion.1.remat{}:6-9
    broadcast.1{}:8-9
    scatter.1{}:9-11
    update.1{}:11-13
    tuple.1{}:12-13
  Live ranges at 3 (peak):
    conv.1{0}: 4096 bytes (cumulative: 4096 bytes)
    fusion.1{}:0-99
"""

BUFFERS = """\
BufferAssignment:
allocation 0: size 1024, parameter 0, shape |f32[256]| at ShapeIndex {}, maybe-live-out:
 value: <1 w.1 @0> (size=1024,offset=0): f32[256]{0}
 value: <9 update.1 @0> (size=1024,offset=0): f32[256]{0}
allocation 1: size 1024, parameter 1, shape |f32[256]| at ShapeIndex {}, maybe-live-out:
 value: <2 m.1 @0> (size=1024,offset=0): f32[256]{0}
allocation 2: size 2048, parameter 2, shape |f32[512]| at ShapeIndex {}:
 value: <3 x.1 @0> (size=2048,offset=0): f32[512]{0}
allocation 3: size 16, output shape is |(f32[256], f32[256])|, maybe-live-out:
 value: <10 tuple.1{} @0> (size=16,offset=0): (f32[256]{0}, f32[256]{0})
allocation 4: size 4, thread-local:
 value: <11 max.1 @0> (size=4,offset=0): f32[1024]{0}
allocation 5: size 4, constant:
 value: <12 constant.1 @0> (size=4,offset=0): f32[]
allocation 6: size 12544, preallocated-temp:
 value: <4 copy.1 @0> (size=1024,offset=6144): f32[256]{0}
 value: <5 conv.1{0} @0> (size=4096,offset=0): f32[1024]{0}
 value: <6 conv.1{1} @0> (size=2048,offset=4096): u8[2048]{0}
 value: <7 fusion.1 @0> (size=4096,offset=4096): f32[1024]{0}
 value: <8 fusion.1.remat @0> (size=4096,offset=8192): f32[1024]{0}
 value: <13 broadcast.1 @0> (size=4096,offset=0): f32[1024]{0}
 value: <14 scatter.1 @0> (size=4096,offset=0): f32[1024]{0}

Total bytes used: 16660 (16.3KiB)
"""
TEMPORARY_BYTES = 12544
OUTPUT_BYTES = 256  # 16, as the allocator hands it out
ARGUMENT_BYTES = 4096


def as_in_0_9(folder: Path) -> Path:
    """Lifetimes stand at the end of the buffer assignment."""
    write(folder, PROGRAM, LIVE_RANGE, BUFFERS + "\n" + LIVE_RANGE)
    next(folder.glob("*live-range.txt")).unlink()
    return folder


def as_in_0_10(folder: Path) -> Path:
    return write(folder, PROGRAM, LIVE_RANGE, BUFFERS)


def as_in_0_11(folder: Path) -> Path:
    """Allocations carry a page, and parts of results stand in the schedule alone."""
    program = "\n".join(line for line in PROGRAM.split("\n") if " get-tuple-element(" not in line)
    return write(
        folder,
        program,
        LIVE_RANGE,
        BUFFERS.replace(", parameter", ", page 0, parameter")
        .replace(", preallocated-temp", ", page 0, preallocated-temp")
        .replace(", output", ", page 0, output"),
    )


def write(folder: Path, program: str, live_range: str, buffers: str) -> Path:
    start = folder / "module_0001.jit_call.sm_7.5_gpu_after_optimizations"
    Path(f"{start}.txt").write_text(program)
    Path(f"{start}-live-range.txt").write_text(live_range)
    Path(f"{start}-buffer-assignment.txt").write_text(buffers)
    return folder


@pytest.fixture(params=[as_in_0_9, as_in_0_10, as_in_0_11], ids=["0.9", "0.10", "0.11"])
def dump(request, tmp_path):
    return read_dump(request.param(tmp_path))


@pytest.fixture
def timeline(dump):
    return timeline_of(dump, ARGUMENTS, SCOPES)


@pytest.fixture
def attribution(dump):
    return Attribution(dump, ARGUMENTS, SCOPES)


def value(dump, name: str, place: str = "{}") -> Value:
    return next(
        value
        for allocation in dump.allocations
        for value in allocation.values
        if (value.instruction, value.place) == (name, place)
    )


def test_only_what_runs_is_a_moment(timeline):
    names = [moment.name for moment in timeline.moments]
    assert names == ["copy.1", "conv.1", "fusion.1", "fusion.1.remat", "broadcast.1", "scatter.1", "update.1"]


def test_lifetimes_follow_what_runs(dump):
    lifetimes = dump.schedule.lifetimes
    assert lifetimes["copy.1{}"] == (0, 1)
    assert lifetimes["conv.1{0}"] == (1, 3)
    assert lifetimes["conv.1{1}"] == (1, 1)
    assert lifetimes["fusion.1{}"] == (2, 3)
    assert lifetimes["scatter.1{}"] == (5, 6)
    assert lifetimes["m.1{}"] == (0, 6)


def test_allocations_have_their_roles(dump):
    roles = [(allocation.role, allocation.size_bytes, allocation.parameter) for allocation in dump.allocations]
    assert roles == [
        ("parameter", 1024, 0),
        ("parameter", 1024, 1),
        ("parameter", 2048, 2),
        ("output", 16, None),
        ("constant", 4, None),
        ("temporary", TEMPORARY_BYTES, None),
    ]
    assert [len(allocation.values) for allocation in dump.allocations] == [2, 1, 1, 1, 1, 7]


def test_the_peak_is_what_the_step_asks_of_the_allocator(timeline):
    assert timeline.peak_bytes == ARGUMENT_BYTES + OUTPUT_BYTES + TEMPORARY_BYTES
    assert sum(timeline.by_kind().values()) == timeline.peak_bytes
    assert sum(timeline.by_layer().values()) == timeline.peak_bytes


def test_a_value_updated_in_place_is_counted_once(timeline):
    """`scatter.1` adds into `broadcast.1`: one piece of memory, from the one's start to the other's end."""
    zeros = [buffer for buffer in timeline.buffers if (buffer.first, buffer.last) == (4, 6)]
    assert [buffer.size_bytes for buffer in zeros] == [4096]
    assert not any(buffer.first == 5 for buffer in timeline.buffers)


def test_gaps_of_the_block_are_nobodys(timeline):
    """At its fullest, when the relu is computed again, the block holds three values of 4,096 bytes."""
    assert timeline.moments[timeline.peak_moment].name == "fusion.1.remat"
    assert timeline.by_kind()["other"] == TEMPORARY_BYTES - 3 * 4096 + OUTPUT_BYTES
    assert timeline.by_layer()[NO_LAYER] == TEMPORARY_BYTES - 3 * 4096 + OUTPUT_BYTES


def test_layers_come_from_the_names_of_operations(attribution):
    assert attribution.layer("conv.1") == "conv"
    assert attribution.layer("w.1") == "conv"
    assert attribution.layer("x.1") is None
    assert attribution.layer("scatter.1") == "inner/relu"
    assert attribution.layer("update.1") is None


def test_what_carries_no_name_takes_it_from_what_it_fuses(attribution):
    assert attribution.layer("fusion.1") == "inner/relu"
    assert attribution.phase("fusion.1") == "forward"


def test_zeros_to_add_into_are_named_by_their_user(attribution, dump):
    assert attribution.layer("broadcast.1") == "inner/relu"
    assert attribution.phase("broadcast.1") == "backward"
    assert attribution.kind(value(dump, "broadcast.1")) == "gradients"


def test_phases_come_from_the_transformations_around_a_name(attribution):
    assert attribution.phase("conv.1") == "forward"
    assert attribution.phase("scatter.1") == "backward"
    assert attribution.phase("update.1") == "update"


def test_what_is_recomputed_is_an_activation_in_the_backward_pass(attribution, dump):
    assert attribution.phase("fusion.1.remat") == "backward"
    assert attribution.kind(value(dump, "fusion.1.remat")) == "activations"
    assert attribution.layer("fusion.1.remat") == "inner/relu"


def test_kinds_of_temporary_values(attribution, dump):
    assert attribution.kind(value(dump, "conv.1", "{0}")) == "activations"
    assert attribution.kind(value(dump, "conv.1", "{1}")) == "workspace"
    assert attribution.kind(value(dump, "copy.1")) == "weights"
    assert attribution.kind(value(dump, "scatter.1")) == "gradients"


def test_without_an_optimizer_everything_is_forward(dump):
    arguments = (ARGUMENTS[0], Argument(size_bytes=1024, kind="weights", layer="conv"), ARGUMENTS[2])
    attribution = Attribution(dump, arguments, replace(SCOPES, training=False))
    assert {attribution.phase(name) for name in dump.schedule.instructions} <= {"forward", None}
    assert attribution.kind(value(dump, "fusion.1.remat")) == "activations"


def test_a_dump_is_there_when_all_its_parts_are(tmp_path):
    assert dumped_bytes(tmp_path) is None
    as_in_0_10(tmp_path)
    assert dumped_bytes(tmp_path) == sum(path.stat().st_size for path in tmp_path.iterdir())
    next(tmp_path.glob("*live-range.txt")).write_text("")
    assert dumped_bytes(tmp_path) is None
    as_in_0_9(tmp_path)
    assert dumped_bytes(tmp_path) == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_of_several_programs_the_largest_is_the_step(tmp_path):
    as_in_0_10(tmp_path)
    for path in list(tmp_path.iterdir()):
        path.with_name(path.name.replace("0001.jit_call", "0002.helper")).write_text("")
    assert len(read_dump(tmp_path).allocations) == 6
