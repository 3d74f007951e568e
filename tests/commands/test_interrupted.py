"""Ctrl-C in a command: the exit code."""

import subprocess
import sys

INTERRUPTED_IN_EXEC = """
import click
from fitroom.cli import gpus, main

@click.command()
def interrupted():
    exec("import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(10)")

gpus.command = interrupted
main.main()
"""


def test_ctrl_c_within_an_exec_of_text_exits_with_130(tmp_path):
    (tmp_path / "interrupted.py").write_text(INTERRUPTED_IN_EXEC)
    # As `python -m fitroom` is run: a script's own name ends in another way.
    command = [sys.executable, "-m", "interrupted", "gpus"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 130, done.stderr
    assert done.stderr.count("interrupted") == 1
