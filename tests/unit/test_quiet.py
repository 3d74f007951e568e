"""What frameworks say of themselves while fitroom estimates and plans is kept from stderr; what went wrong is not."""

import logging
import os
import subprocess
import sys
import threading

import pytest
from rich.console import Console
from rich.live import Live

from fitroom.backends.quiet import hold_stderr

TALKING = """
import os
os.write(2, b"oneDNN custom operations are on")
class TensorShape: pass
class DType: pass
class TypeSpec: pass
"""
BROKEN = TALKING + "raise RuntimeError('built for another NumPy')"

IMPORTING = """
import contextlib
from fitroom.backends.quiet import quiet_tensorflow_imports
with contextlib.suppress(RuntimeError), quiet_tensorflow_imports():
    import tensorflow
    print(tensorflow.__spec__.loader.get_source("tensorflow") != "")
"""


def with_package(folder, text):
    """A folder with a package `tensorflow` of this text, to be found before any other."""
    package = folder / "tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text(text)
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


@pytest.mark.parametrize(("text", "heard"), [(TALKING, ""), (BROKEN, "oneDNN custom operations are on\n")])
def test_tensorflow_beside_another_backend_is_heard_only_where_it_fails(text, heard, tmp_path):
    environment = os.environ | with_package(tmp_path, text)
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, heard)
    assert done.stdout == ("" if heard else "True\n")


def test_two_threads_that_hold_stderr_back_leave_it_as_it_was(capfd):
    inside = threading.Event()

    def hold():
        with hold_stderr():
            inside.set()
            os.write(2, b"chatter")

    with hold_stderr() as held:
        other = threading.Thread(target=hold)
        other.start()
        assert not inside.wait(0.05), "the other waits"
    other.join()
    os.write(2, b"heard again")
    assert (held.text, capfd.readouterr().err) == ("", "heard again")


def test_a_logger_is_held_back_where_a_live_view_has_taken_the_place_of_stderr(capfd):
    with Live(console=Console(file=sys.stderr, force_terminal=True), refresh_per_second=0.01), hold_stderr() as held:
        logging.lastResort.emit(logging.makeLogRecord({"msg": "no CUDA-enabled jaxlib"}))
        late = logging.StreamHandler(sys.stderr)  # as a framework makes one at its import, and keeps it
    assert held.text == "no CUDA-enabled jaxlib"
    late.emit(logging.makeLogRecord({"msg": "heard again"}))
    assert "no CUDA" not in (heard := capfd.readouterr().err)
    assert "heard again" in heard


def test_without_a_stderr_nothing_is_held_back():
    program = """
import os
from fitroom.backends.quiet import hold_stderr
os.close(2)
with hold_stderr() as held:
    print("done", repr(held.text))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "done ''\n")
