"""`fitroom run` on scripts as people write them, which die of memory without it. Real out-of-memory, no GPU."""

import subprocess
import sys

import numpy as np
import pytest

from pressure import limited
from processes import ROOT, needs
from ready_process import run_forked

SCRIPTS = ROOT / "tests" / "helpers" / "scripts"
BATCH_SIZE, EPOCHS = 512, 2
LIMIT_MB = 300


def run(*command):
    command = [sys.executable, *map(str, command)]
    return subprocess.run(command, env=limited(LIMIT_MB), capture_output=True, text=True, timeout=600)


def run_fork(*command):
    """The same, forked from a process that has imported TensorFlow; its devices have not started."""
    return run_forked(*map(str, command), backend="tensorflow", cwd=ROOT, env=limited(LIMIT_MB))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder per class, with pictures as they come from a camera: JPEG, of different sizes."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for kind in ("daisy", "rose"):
        (folder / kind).mkdir()
        for number in range(500):
            picture = random.integers(0, 255, (50 + number % 7, 60, 3), "uint8")
            Image.fromarray(picture).save(folder / kind / f"{number}.jpg")
    return folder


@pytest.mark.parametrize(
    "script",
    [
        "numpy_arrays.py",
        pytest.param("tf_data.py", marks=pytest.mark.slow),
        pytest.param("folder_of_pictures.py", marks=pytest.mark.slow),
    ],
)
def test_a_script_that_dies_of_memory_trains_unchanged(script, request):
    needs("tensorflow")
    pictures = [request.getfixturevalue("pictures")] if "folder" in script else []
    arguments = [SCRIPTS / script, *pictures, BATCH_SIZE, EPOCHS]
    without = run_fork(*arguments)
    assert without.returncode != 0
    assert "ResourceExhaustedError" in without.stderr
    with_it = run_fork("-m", "fitroom", "run", *arguments)
    assert with_it.returncode == 0, with_it.stderr[-3000:]
    assert f"updates {2 * EPOCHS}" in with_it.stdout
    assert "model.fit protected" in with_it.stderr
    assert f"The batch stays at {BATCH_SIZE}" in with_it.stderr


def test_on_a_card_tensorflow_does_not_wait_for_memory(tmp_path):
    """Planted: there is no card. TensorFlow is asked what it was told before its devices started."""
    needs("tensorflow")
    script = tmp_path / "asks.py"
    script.write_text(
        "import tensorflow as tf\n"
        "from tensorflow.python.eager import context\n"
        "tf.ones(3)\n"
        "print('waits', not context.context().config.gpu_options.experimental.disallow_retry_on_allocation_failure)\n"
        "tf.config.list_physical_devices = lambda kind: [kind]\n"
        "import fitroom\n"
        "fitroom.protect()\n"
    )
    in_time, too_late = run("-m", "fitroom", "run", script), run_fork(script)
    assert "waits False" in in_time.stdout
    assert "10 s" not in in_time.stderr
    assert "waits True" in too_late.stdout
    assert too_late.stderr.count("will wait 10 s before each out-of-memory error: its devices were in use") == 1


def test_a_script_that_is_not_there_is_an_error():
    done = run("-m", "fitroom", "run", "nowhere.py")
    assert done.returncode == 1
    assert "no script 'nowhere.py'" in done.stderr


def test_a_misspelt_option_before_the_script_is_wrong_usage():
    done = run("-m", "fitroom", "run", "--rundir", "x", "train.py")
    assert done.returncode == 2
    assert "No such option" in done.stderr
    assert "--run-dir" in done.stderr


def test_a_script_that_is_no_python_is_shown_as_python_shows_it(tmp_path):
    script = tmp_path / "wrong.py"
    script.write_text("def broken(:\n    pass\n")
    done = run("-m", "fitroom", "run", script)
    assert done.returncode == 1
    assert f'File "{script}", line 1' in done.stderr
    assert "SyntaxError" in done.stderr
    assert "runpy" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_script_finds_its_own_file_wherever_it_goes(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text("import os\nos.chdir('/')\nprint(open(__file__).read()[:9])\n")
    monkeypatch.chdir(tmp_path)
    assert "import os" in run("-m", "fitroom", "run", "own.py").stdout


def test_an_error_is_shown_as_python_shows_it_wherever_the_script_went(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text("import os\nos.chdir('/')\nraise KeyError('mine')\n")
    monkeypatch.chdir(tmp_path)
    said = run("-m", "fitroom", "run", "own.py").stderr
    assert "own.py" in said
    assert "runpy" not in said


def test_the_scripts_own_arguments_errors_and_exit_codes_are_its_own(tmp_path):
    script = tmp_path / "own.py"
    script.write_text("import sys\nprint(__name__, sys.argv[1:])\nsys.exit(int(sys.argv[2]))\n")
    done = run("-m", "fitroom", "run", script, "--epochs", "7")
    assert done.returncode == 7
    assert "__main__ ['--epochs', '7']" in done.stdout
    script.write_text("def broken():\n    raise KeyError('mine')\nbroken()\n")
    done = run("-m", "fitroom", "run", script)
    assert done.returncode == 1
    assert "in broken" in done.stderr
    assert "KeyError: 'mine'" in done.stderr
