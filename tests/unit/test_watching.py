"""Parts of `fitroom.watch` that need no framework: peaks shared by meters, phases, the thread, the trace, the text."""

import threading
import time

import pytest

from fitroom.backends.fake.backend import FakeBackend
from fitroom.backends.meter import LimitWarning, MemoryMeter
from fitroom.inputs.waiting import TimedBatches, listening_to_waits
from fitroom.watching.input_clock import InputClock
from fitroom.watching.phases import PhaseMeter
from fitroom.watching.running_call import RunningCall
from fitroom.watching.sampler import Sampler
from fitroom.watching.trace import make_trace
from sample_estimates import small_estimate
from sample_watches import GIB, make_reading, make_summary
from traces import check_trace


def test_meters_of_one_device_each_find_the_peak_that_another_has_reset():
    backend = FakeBackend(capacity_bytes=1000)
    first, second = MemoryMeter(backend), MemoryMeter(backend)
    backend.free(backend.allocate(600))
    assert first.read()["peak_bytes"] == 600
    backend.free(backend.allocate(400))
    assert first.read()["peak_bytes"] == 400
    assert second.read()["peak_bytes"] == 600
    assert second.read()["peak_bytes"] is None


def test_meters_of_other_devices_are_not_told():
    backend = FakeBackend(capacity_bytes=1000)
    card, cpu = (MemoryMeter(backend, device=device) for device in backend.devices())
    backend.free(backend.allocate(600))
    card.read()
    assert cpu.read()["peak_bytes"] is None


def test_the_warning_comes_once_at_its_share():
    warning = LimitWarning(0.5)
    assert warning.check(49, 100) is None
    assert "50 of 100 B" in warning.check(50, 100)
    assert warning.check(99, 100) is None


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_wait_counts_only_while_the_device_has_nothing_to_do():
    now = Clock()
    clock = InputClock(now)
    for begin in (100.0, 110.0):  # taken within the step, as on JAX
        now.now = begin
        clock.begin_batch()
    clock.add_wait(110.0, 112.0)
    assert clock.totals(at=112.0) == (0.0, 2.0)  # the first batch is still computed
    clock.end_batch(at=113.0)
    clock.end_batch(at=114.0)
    clock.begin_batch()
    clock.add_wait(113.5, 116.0)
    assert clock.totals(at=120.0) == (2.0, 10.0)  # from 114 to 116


def test_a_wait_before_its_step_counts_in_the_same_way():
    now = Clock()
    clock = InputClock(now)
    clock.add_wait(99.0, 100.0)
    clock.begin_batch()
    clock.end_batch(at=101.0)
    now.now = 102.0
    clock.begin_batch()
    clock.add_wait(103.0, 105.0)  # the second batch is not done
    assert clock.totals(at=106.0) == (0.0, 4.0)
    clock.end_batch(at=106.0)
    clock.begin_batch()
    clock.add_wait(106.5, 108.5)
    assert clock.totals(at=112.0)[0] == 0.0  # the third is not done
    clock.end_batch(at=109.0)
    clock.begin_batch()
    clock.end_batch(at=109.5)
    clock.add_wait(109.0, 111.5)
    assert clock.totals(at=112.0) == (2.0, 10.0)


def test_what_the_framework_counts_is_taken_of_training_alone():
    now, waited = Clock(), [5.0]
    clock = InputClock(now)
    clock.count_outside = lambda: waited[0]
    clock.begin_batch()
    now.now, waited[0] = 101.0, 6.0
    clock.begin_batch()
    now.now, waited[0] = 105.0, 8.0
    clock.pause()
    now.now, waited[0] = 205.0, 108.0  # validation
    clock.resume()
    now.now, waited[0] = 207.0, 109.0
    assert clock.totals() == (3.0, 6.0)


def test_waits_are_heard_within_the_block_alone():
    heard = []
    with listening_to_waits(lambda begin, end, samples: heard.append(end - begin)):
        assert list(TimedBatches([1, 2, 3])) == [1, 2, 3]
    assert list(TimedBatches([1])) == [1]
    assert len(heard) == 3
    assert all(seconds >= 0 for seconds in heard)


def test_phases_have_the_peak_between_their_marks():
    now, peaks = Clock(), iter([7, 10, 30, 12, 25, 11])
    meter = PhaseMeter(lambda: next(peaks), clock=now)
    step = ["backward begins", "backward ends", "update begins", "update ends"]
    for mark in step:  # not measured: where it began is not known
        meter.on_mark(mark)
    assert meter.peak_bytes == {}
    for mark in step:
        now.now += 1.0
        meter.on_mark(mark)
    assert meter.peak_bytes == {"forward": 12, "backward": 30, "update": 25}
    assert [(each.phase, each.end - each.begin) for each in meter.slices] == [
        ("forward", 1.0),
        ("backward", 1.0),
        ("forward", 1.0),
        ("update", 1.0),
    ]


def test_phases_are_measured_seldom_where_reading_is_slow():
    now, reads = Clock(), []

    def take_peak():
        reads.append(now.now)
        now.now += 0.01
        return 5

    meter = PhaseMeter(take_peak, clock=now)
    for _ in range(1000):
        for mark in ("backward begins", "backward ends", "update begins", "update ends"):
            now.now += 0.01
            meter.on_mark(mark)
    assert 0 < 0.01 * len(reads) / (now.now - 100.0) < 0.01


def test_a_sampler_reads_less_often_where_a_reading_takes_long():
    calls = []

    def work():
        calls.append(time.monotonic())
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    sampler = Sampler(work, interval=0.01)
    sampler.start()
    time.sleep(0.5)
    sampler.stop()
    assert len(calls) == 1  # the next is due after 20 ms / 0.3 %
    assert sampler.own_seconds >= 0.02


def test_a_call_is_running_until_it_raises():
    ready, go = threading.Event(), threading.Event()
    made = []

    def on_train_begin(depth):
        if depth:
            on_train_begin(depth - 1)  # as a list of callbacks calls each of them
        else:
            made.append(RunningCall("on_train_begin"))

    def fit():
        on_train_begin(2)
        ready.set()
        go.wait()
        raise ZeroDivisionError

    def main():
        with pytest.raises(ZeroDivisionError):
            fit()
        done.set()
        end.wait()

    done, end = threading.Event(), threading.Event()
    thread = threading.Thread(target=main)
    thread.start()
    ready.wait()
    assert made[0].is_running()
    go.set()
    done.wait()
    assert not made[0].is_running()
    end.set()
    thread.join()


class Observed:
    """What a trace takes of an observer, by hand."""

    def __init__(self):
        self.backend = FakeBackend()
        self.batch_begins = [10.0, 12.0, 13.0, 14.0]
        now, peaks = Clock(), iter([7, 10, 30, 12, 25, 11])
        now.now = 13.0
        self.phases = PhaseMeter(lambda: next(peaks), clock=now)
        for mark in ["backward begins", "backward ends", "update begins", "update ends"] * 2:
            now.now += 0.125
            self.phases.on_mark(mark)


def test_a_trace_shows_measurement_and_estimate_side_by_side():
    trace = make_trace(Observed(), [make_reading(0.0), make_reading(1.0, input_wait=0.25)], small_estimate(), zero=10.0)
    tracks = check_trace(trace)
    assert tracks["measured on fake"] == {
        "gpu:0 memory (bytes)": 2,
        "gpu:1 memory (bytes)": 2,
        "gpu:0 utilization (%)": 2,
        "gpu:1 utilization (%)": 2,
        "host memory (bytes)": 2,
        "input wait (%)": 1,
        "batches": 3,
        "phases of one step": 4,
    }
    predicted = tracks["predicted: one step on NVIDIA L4 (compiled)"]
    assert predicted["memory by kind (bytes)"] == 6
    assert predicted["phases (predicted)"] == 3
    counters = [event for event in trace["traceEvents"] if event["name"] == "memory by kind (bytes)"]
    assert max(sum(event["args"].values()) for event in counters) == small_estimate().peak_bytes
    steps = [event for event in trace["traceEvents"] if event["name"] == "batch 1"]
    assert [(event["ts"], event["dur"]) for event in steps] == [(2e6, 1e6)]
    assert [counters[0]["ts"], counters[-1]["ts"]] == pytest.approx([2e6, 2e6 + 1e6 * 5 / 6], abs=1)


def test_the_summary_says_what_is_known():
    summary = make_summary()
    assert str(summary).splitlines() == [
        "fitroom: watched 1,000 steps in 2 minutes on JAX",
        "  gpu:0     NVIDIA H200: peak 10.00 of 100.00 GiB since the process began,",
        "            2.00 GiB at the end, busy 97 % of the time",
        "  phases    forward 9.00 GiB, backward 10.00 GiB (predicted)",
        "  host      3.00 GiB at most",
        "  input     training waited for it 25 % of the time",
        "  watching  took 0.1 % of one core",
        "  Input took 25 % of the time; `fitroom doctor --data` names the slowest stage.",
        "  A note.",
    ]
    assert "NVIDIA H200" in summary._repr_html_()
    assert summary.to_dict()["peak_bytes"] == 10 * GIB
