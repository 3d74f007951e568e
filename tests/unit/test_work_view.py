"""What long work shows while it runs: never silence, and lines that a log or a terminal of any width can take."""

import io
import time
from itertools import pairwise

import pytest
from rich.console import Console

from fitroom.activity import Activities, Activity, activity, announce, begin_step, watching
from fitroom.report.progress import heartbeat
from fitroom.report.progress.lines import LineView
from fitroom.report.progress.work import WorkLine, WorkLines
from sample_readings import reading


class TimedLog(io.StringIO):
    """A log that notes when each line came."""

    def __init__(self):
        super().__init__()
        self.times = []

    def write(self, text):
        self.times.append(time.monotonic())
        return super().write(text)

    @property
    def lines(self):
        return self.getvalue().splitlines()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(heartbeat, "SECONDS_BETWEEN", 0.05)


def test_a_log_tells_what_is_done_which_part_of_it_and_for_how_long():
    log = TimedLog()
    with WorkLines(log) as view, watching(view.activities):
        begin_step("estimate 2 of about 4", "micro-batch 37", expected_seconds=12)
        with activity("compiling for JAX, once per shape"):
            time.sleep(0.2)
        announce("first answer, interpolated: micro-batch 37")
    said = log.lines
    assert said[0] == "estimate 2 of about 4: micro-batch 37 ..."
    assert said[1] == "estimate 2 of about 4: compiling for JAX, once per shape, 0 of about 12 s"
    assert said[-1] == "first answer, interpolated: micro-batch 37"
    before = len(said)
    time.sleep(0.1)
    assert len(log.lines) == before, "it is over"


def test_a_log_is_never_silent_for_long():
    log = TimedLog()
    began = time.monotonic()
    with WorkLines(log) as view, watching(view.activities):
        time.sleep(0.4)
        ended = time.monotonic()
    times = [began, *log.times, ended]
    assert len(log.lines) >= 2
    assert log.lines[0] == "starting"
    assert max(later - earlier for earlier, later in pairwise(times)) < 0.3


def test_the_preparation_of_a_training_is_told_until_its_first_reading():
    log = TimedLog()
    with LineView(log) as view, watching(view.activities), activity("reading the folder of images"):
        time.sleep(0.2)
    assert log.lines[0] == "reading the folder of images, 0 s"


def test_what_comes_after_a_training_is_told_and_the_training_itself_by_its_readings():
    log = TimedLog()
    with LineView(log) as view, watching(view.activities):
        with activity("the first batch"):
            view.reading(reading(epoch=0, batch=1))
            time.sleep(0.2)
        time.sleep(0.2)
        assert log.lines == []
        with activity("measuring the model"):
            time.sleep(0.2)
    assert log.lines[0] == "measuring the model, 0 s"


@pytest.mark.parametrize("width", [20, 80, 200])
def test_a_terminal_has_one_line_whatever_its_width(width):
    view = WorkLine(Console(file=io.StringIO(), force_terminal=True, width=width))
    view.activities.begin_step("estimate 2 of about 4", "micro-batch 37", expected_seconds=12)
    with view.activities.within(Activity(text="compiling for JAX, once per shape")):
        console = Console(file=io.StringIO(), width=width)
        console.print(view)
    [line] = console.file.getvalue().splitlines()
    assert len(line) <= width
    assert "estimate 2 of" in line


def test_a_step_that_began_within_a_part_ends_with_it():
    told = Activities()
    with watching(told):
        with activity("planning"):
            begin_step("estimate 1 of 1")
            assert told.describe() == "estimate 1 of 1, 0 s"
        assert told.describe() is None


def test_where_nobody_watches_nothing_is_shown(capfd):
    with activity("building"):
        assert not begin_step("estimate 1 of 1")
        assert not announce("done")
    assert capfd.readouterr() == ("", "")
