"""An error's hint is seen wherever the error is, and seen once."""

import subprocess
import sys

import pytest

from fitroom.errors import InputError, RunInterrupted, message_of


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "import fitroom; fitroom.find_card('RTX 3600')"),
        ("-m", "fitroom", "gpus", "RTX 3600"),
        ("-m", "fitroom", "gpus", "RTX 3600", "--debug"),
    ],
)
def test_a_traceback_and_the_command_line_show_the_hint_once(arguments):
    done = run(*arguments)
    assert done.returncode == 1
    assert done.stderr.count("hint: did you mean") == 1
    assert done.stderr.count("Received: 'RTX 3600'") == 1
    assert ("Traceback" in done.stderr) == (arguments[0] == "-c" or "--debug" in arguments)


def test_the_hint_is_in_the_text_and_the_message_is_without_it():
    error = InputError("What.", hint="try this")
    assert str(error) == "What.\nhint: try this"
    error.hint = "or that"  # as commands do, which speak of flags
    assert str(error) == "What.\nhint: or that"
    assert message_of(error) == "What."
    assert str(RunInterrupted("Stopped.", signal_number=15, hint="again")) == "Stopped.\nhint: again"
    assert str(InputError("What.")) == "What."


@pytest.mark.parametrize(
    ("before", "after", "is_shown"), [(("--debug",), (), True), ((), ("--debug",), False), ((), (), False)]
)
def test_debug_is_the_commands_and_not_the_scripts(before, after, is_shown, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("from fitroom.errors import InputError; raise InputError('What.', hint='try this')")
    done = run("-m", "fitroom", *before, "run", str(script), *after)
    assert (done.returncode, "Traceback" in done.stderr) == (1, is_shown)
