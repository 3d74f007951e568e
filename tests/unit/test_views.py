"""The exact text of a training's views, at fixed widths and without colour."""

import contextlib
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
from rich.console import Console

import sample_readings
from fitroom.cli import predict
from fitroom.report.progress.lines import JsonView, LineView
from fitroom.report.progress.live import LiveView
from fitroom.report.progress.state import Progress
from sample_readings import END_OF_FIRST_EPOCH, JOB, LOGS, reading

HELPERS = Path(sample_readings.__file__).parent
GIB = 2**30
OUT_OF_MEMORY = {
    "kind": "out of memory",
    "message": "out of memory in training with micro-batch 64",
    "during": "training",
    "epoch": 1,
    "batch": 11,
    "samples": 64,
    "smaller": 32,
}


class Screen:
    """A live view in a console of a width and an encoding, that prints when it is told to."""

    def __init__(self, width=80, encoding="utf-8"):
        self.raw, self.encoding = BytesIO(), encoding
        file = TextIOWrapper(self.raw, encoding=encoding)
        self.console = Console(file=file, width=width, color_system=None)
        self.view = LiveView(self.console, clock=iter(range(0, 1000, 7)).__next__)

    def text(self):
        """What scrolled by and, below it, how it stands."""
        self.console.print(self.view)
        self.console.file.flush()
        return "\n".join(line.rstrip() for line in self.raw.getvalue().decode(self.encoding).splitlines()) + "\n"

    def after_an_epoch(self):
        self.view.began(JOB)
        self.view.reading(END_OF_FIRST_EPOCH)
        self.view.epoch_ended(0, LOGS)
        self.view.event(OUT_OF_MEMORY)
        self.view.reading(reading(time=1005.0))
        return self


AT_80_COLUMNS = """\
xception at 299 px, batch 256 in micro-batches of 64, mixed_bfloat16, JAX on
NVIDIA H200, 10 epochs
epoch 1/10   loss 0.8781   accuracy 0.5610   val_loss 0.9659
val_accuracy 0.5122   20 s
out of memory at batch 12 of epoch 2: micro-batch 64 to 32, batch repeated

epoch 2/10  ━━━━━━━━━─────────────────────────────  25 of 100 batches, 15 s left
all epochs  ━━━━──────────────────────────────────  12 %, 3 min left
memory      ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━──────  6.80 of 8.00 GiB, 85 %

loss 0.7945   accuracy 0.6027   val_loss 0.9659   val_accuracy 0.5122
1,280 images/s   learning rate 0.00065   micro-batch 64 of 256   host 2.10 GiB
"""

AT_40_COLUMNS_IN_ASCII = """\
xception at 299 px, batch 256 in
micro-batches of 64, mixed_bfloat16, JAX
on NVIDIA H200, 10 epochs
epoch 1/10   loss 0.8781
accuracy 0.5610   val_loss 0.9659
val_accuracy 0.5122   20 s
out of memory at batch 12 of epoch 2:
micro-batch 64 to 32, batch repeated

epoch 2/10  ##........  15 s left
all epochs  #.........  3 min left
memory      ########..  6.80 of 8.00 GiB

loss 0.7945   accuracy 0.6027
val_loss 0.9659   val_accuracy 0.5122
1,280 images/s   learning rate 0.00065
micro-batch 64 of 256   host 2.10 GiB
"""


@pytest.mark.parametrize(
    ("width", "encoding", "expected"), [(80, "utf-8", AT_80_COLUMNS), (40, "ascii", AT_40_COLUMNS_IN_ASCII)]
)
def test_the_live_view_at_a_width(width, encoding, expected):
    assert Screen(width, encoding).after_an_epoch().text() == expected


@pytest.mark.parametrize("width", [20, 30, 40, 55, 64, 80, 120, 200])
def test_the_lines_that_change_are_never_wider_than_the_terminal(width):
    screen = Screen(width, "ascii")
    screen.view.reading(reading(batch=100_000, batches=1_000_000, epochs=1000, peak_bytes=int(7.9 * GIB)))
    assert max(map(len, screen.text().splitlines())) <= width


def test_nearly_full_memory_is_said_in_words_too():
    screen = Screen()
    screen.view.reading(reading(peak_bytes=int(7.2 * GIB) + 1))
    assert "7.20 of 8.00 GiB, 90 %, nearly full" in screen.text()


def test_before_the_first_reading_a_clock_shows_that_it_is_alive():
    assert Screen().text() == "\nstarting, 7 s\n"


def test_what_is_unknown_is_left_out():
    screen = Screen()
    unknown = ("pictures_per_second", "learning_rate", "in_use_bytes", "peak_bytes", "limit_bytes", "micro_batch")
    screen.view.reading(reading(**dict.fromkeys(unknown), host_bytes=None, batches=None, loss=None))
    assert screen.text() == (
        "\n"
        "epoch 2/10  ────────────────────────────────────────────────  25 batches\n"
        "all epochs  ━━━━────────────────────────────────────────────  10 %\n"
        "\n"
        "loss not a number   accuracy 0.6027\n"
    )


def test_memory_without_a_limit_is_a_figure_without_a_bar():
    screen = Screen()
    screen.view.reading(reading(limit_bytes=None))
    assert "memory 6.80 GiB" in screen.text()


def test_validation_is_said_while_it_lasts():
    screen = Screen()
    screen.view.reading(reading(batch=100))
    assert "100 of 100 batches, validating" in screen.text()
    screen.view.epoch_ended(1, LOGS)
    assert "100 of 100 batches, done" in screen.text()


def test_names_that_the_encoding_lacks_or_that_look_like_markup_are_shown_as_they_are():
    screen = Screen(encoding="ascii")
    screen.view.said("class [bold]Gänseblümchen[/bold] has 3 pictures")
    assert "class [bold]G\\xe4nsebl\\xfcmchen[/bold] has 3 pictures" in screen.text()


def test_lines_come_at_each_epoch_at_events_and_every_thirty_seconds():
    now = [0.0]
    file = StringIO()
    with LineView(file, clock=lambda: now[0]) as view:
        view.said("3,670 pictures in 5 classes")
        view.began(JOB)
        for second in range(61):
            now[0] = float(second)
            view.reading(reading(epoch=0, batch=second + 1, time=1000.0 + second, pictures_per_second=256.0))
        view.event(OUT_OF_MEMORY)
        view.epoch_ended(0, LOGS)
        view.ended(
            {"state": "finished", "epochs": 1, "seconds": 61, "run_dir": "runs/a", "report": "runs/a/report.html"}
        )
    assert file.getvalue() == (
        "3,670 pictures in 5 classes\n"
        "xception at 299 px, batch 256 in micro-batches of 64, mixed_bfloat16, JAX on NVIDIA H200, 10 epochs\n"
        "epoch 1/10  batch 31/100  loss 0.7945  accuracy 0.6027  256 images/s  memory 6.80 of 8.00 GiB  16 min left\n"
        "epoch 1/10  batch 61/100  loss 0.7945  accuracy 0.6027  256 images/s  memory 6.80 of 8.00 GiB  16 min left\n"
        "out of memory at batch 12 of epoch 2: micro-batch 64 to 32, batch repeated\n"
        "epoch 1/10 done  loss 0.8781  accuracy 0.5610  val_loss 0.9659  val_accuracy 0.5122  1 min  256 images/s  "
        "memory 6.80 of 8.00 GiB  10 min left\n"
        "finished: 1 epoch in 1 min\n"
        "run: runs/a\n"
        "report: runs/a/report.html\n"
    )


def test_predictions_stand_in_columns_in_any_script(capsys):
    predict._print([{"file": "a.jpg", "top": [["\u732b", 0.5]]}, {"file": "b.jpg", "top": [["rose", 1.0]]}])
    assert capsys.readouterr().out == "a.jpg  \u732b     50.0 %\nb.jpg  rose  100.0 %\n"


def test_json_is_one_object_a_line_of_a_known_kind():
    file = StringIO()
    with JsonView(file) as view:
        view.said("3,670 pictures")
        view.began(JOB)
        view.reading(reading())
        view.event(OUT_OF_MEMORY)
        view.epoch_ended(0, LOGS | {"loss": float("nan")})
        view.ended({"state": "finished", "seconds": 61.0})
    assert [json.loads(line) for line in file.getvalue().splitlines()] == [
        {"event": "said", "text": "3,670 pictures"},
        {"event": "began", "job": JOB},
        {"event": "reading"} | reading(),
        {"event": "event"} | OUT_OF_MEMORY,
        {"event": "epoch", "epoch": 0, "metrics": LOGS | {"loss": None}},
        {"event": "ended", "state": "finished", "seconds": 61.0},
    ]


PLAYS = """
import os, sys, time
from sample_readings import JOB, LOGS, reading, END_OF_FIRST_EPOCH
from fitroom.cli.output import open_view
with open_view(as_json="--json" in sys.argv) as view:
    os.dup2(2, 1)
    print("the user's own code prints")
    view.began(JOB)
    view.reading(END_OF_FIRST_EPOCH)
    view.epoch_ended(0, LOGS)
    view.reading(reading(time=1005.0))
    time.sleep(1.2)
    view.ended({"state": "finished"})
"""


def test_nothing_but_json_is_on_stdout():
    done = subprocess.run([sys.executable, "-c", PLAYS, "--json"], capture_output=True, text=True, cwd=HELPERS)
    assert [json.loads(line)["event"] for line in done.stdout.splitlines()] == [
        *("began", "reading", "epoch", "reading", "ended")
    ]
    assert done.stderr == "the user's own code prints\n"


def test_a_log_gets_plain_lines_and_no_carriage_returns():
    done = subprocess.run([sys.executable, "-c", PLAYS], capture_output=True, cwd=HELPERS)
    assert done.stdout == b""
    assert b"\r" not in done.stderr
    assert b"\x1b" not in done.stderr
    assert done.stderr.decode().splitlines()[-1] == "finished"


def test_a_terminal_shows_it_live_and_keeps_what_happened():
    printed = in_a_terminal([sys.executable, "-c", PLAYS], columns=80)
    assert "25 of 100 batches, 15 s left" in printed
    after_the_last_change = printed.rpartition("\x1b[2K")[2]
    assert "finished" in after_the_last_change
    assert "left" not in after_the_last_change


@pytest.mark.parametrize("kind", [LineView, JsonView, LiveView])
def test_a_reader_or_a_terminal_that_goes_away_stops_nothing(kind):
    theirs, ours = pty.openpty() if kind is LiveView else os.pipe()
    os.close(theirs)
    gone = open(ours, "w")  # noqa: SIM115 - closing it fails too
    with kind(Console(file=gone, force_terminal=True) if kind is LiveView else gone) as view:
        view.began(JOB)
        view.reading(reading())
        view.epoch_ended(0, LOGS)
        view.ended({"state": "finished"})
    with contextlib.suppress(OSError):
        gone.close()


def in_a_terminal(command, *, columns):
    """All that a command writes to a real terminal of a width."""
    ours, its = pty.openpty()
    ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(
        command, stdin=its, stdout=its, stderr=its, cwd=HELPERS, env=environment | {"TERM": "xterm-256color"}
    )
    os.close(its)
    printed = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            printed += os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
    os.close(ours)
    assert process.wait() == 0, printed
    return printed.decode()


def test_a_stretch_of_a_training_shows_as_part_of_the_whole():
    screen = Screen()
    screen.view.began({"epochs": 20})
    screen.view.reading(reading(epochs=4))
    assert "epoch 2/20" in screen.text()
    assert "6 %" in screen.text()


def test_the_time_left_counts_validation_once_an_epoch_showed_how_long_it_takes():
    progress = Progress()
    progress.read(reading(epoch=0, batch=50, time=100.0))  # 0.2 s a batch: 20 s of training
    assert progress.seconds_left == pytest.approx(10 + 9 * 20)
    progress.read(reading(epoch=0, batch=100, time=115.0))
    progress.epoch_ended()
    assert progress.epoch_seconds == pytest.approx(25.0)  # the 10 s before the first reading included
    assert progress.seconds_left == pytest.approx(9 * 25)
    progress.read(reading(epoch=1, batch=50, time=125.0))
    assert progress.seconds_left == pytest.approx(10 + 5 + 8 * 25)
