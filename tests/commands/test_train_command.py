"""`fitroom train` as it is typed: real JPEG files, real frameworks, real kills; small models."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from fitroom.classify.options import TrainOptions
from picture_runs import LEARNS, TRAIN, environment, fitroom, make_pictures, read, stopped
from processes import hide_tensorflow, needs
from ready_process import run_forked
from sample_runs import write_run
from small_disk import run_on, small_disk

LOADS = """
import sys
import keras, numpy as np
from PIL import Image
model = keras.saving.load_model(sys.argv[1])
picture = np.asarray(Image.open(sys.argv[2]).resize((32, 32)))
found = model.predict(picture[None], verbose=0)
assert abs(found.sum() - 1) < 1e-5, found
assert {layer.dtype_policy.name for layer in model.layers} == {"float32"}
assert not any(name.startswith("fitroom") for name in sys.modules)
print(int(found.argmax()), found.shape)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_pictures(tmp_path_factory.mktemp("train"))


def weights_of(run: Path) -> str:
    """What a `.keras` file holds of weights, whatever day it was written on."""
    import h5py

    digest = sha256()
    with zipfile.ZipFile(run / "model.keras") as archive, archive.open("model.weights.h5") as file:
        h5py.File(file).visititems(lambda name, value: digest.update(name.encode()) or _add(digest, value))
    return digest.hexdigest()


def _add(digest, value):
    if hasattr(value, "shape"):
        digest.update(value[()].tobytes())


def without_times(run: Path) -> list[dict]:
    lines = [json.loads(line) for line in (run / "readings.jsonl").read_text().splitlines()]
    return [{key: line[key] for key in ("epoch", "batch", "update")} for line in lines if line["batch"] == 6]


@pytest.mark.parametrize(
    "backend", ["torch", *(pytest.param(name, marks=pytest.mark.slow) for name in ("jax", "tensorflow"))]
)
def test_a_folder_of_pictures_becomes_a_model_its_results_and_a_report(backend, place):
    needs(backend)
    run = place / "runs" / f"whole-{backend}"
    flags = {
        "jax": ("--label-smoothing", "0.1", "--class-weight", "balanced", "--test", "0.2", "--json"),
        "tensorflow": ("--budget", "300MiB"),
        "torch": ("--micro-batch", "5", "--optimizer", "adamw", "--precision", "mixed_bfloat16"),
    }[backend]
    done = fitroom(place, *TRAIN, *LEARNS, *flags, "--run-dir", str(run), backend=backend)
    assert done.returncode == 0, done.stderr
    job, results = read(run / "job.json"), read(run / "results.json")
    assert (job["backend"], job["device"], job["image_size"]) == (backend, "CPU", 32)
    assert job["classes"] == results["classes"] == ["blue", "green", "red"]
    assert job["data"]["skipped"] == 1
    assert "broken.jpg" in (run / "skipped.jsonl").read_text()
    assert results["metrics"]["accuracy"] > 0.8
    assert sum(map(sum, results["confusion"])) == sum(job["data"]["counts"][results["split"]].values())
    assert results["samples"][0]["thumbnail"].startswith("data:image/jpeg")
    assert "whole-" + backend in (run / "report.html").read_text()
    assert len(read(run / "history.json")["val_accuracy"]) == 4
    if backend == "jax":
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert {"began", "said", "reading", "epoch", "ended"} <= {line["event"] for line in lines}
        assert lines[-1]["model"] == str(run / "model.keras")
        assert results["split"] == "test"
    if backend == "tensorflow":
        # The budget is a real limit of TensorFlow's allocator, and the estimate says that a whole batch fits.
        assert job["budget"] == {"bytes": 300 * 2**20, "source": "given"}
        assert job["recipe"]["micro_batch"] is None
        assert job["plan"]["recipe"]["micro_batch"] == 8
        assert job["recipe_why"] == job["plan"]["why"]
        assert "effect on the result: nothing" in done.stderr
        assert 'data-chart="frontier"' in (run / "report.html").read_text()
        assert read(run / "estimate.json")["fits"]
        assert "limit_bytes" in (run / "readings.jsonl").read_text()
    if backend == "torch":
        settled = {"batch_size": 8, "micro_batch": 5, "precision": "mixed_bfloat16", "jit": None, "remat": None}
        settled["kernels"] = None
        assert (job["recipe"], job["plan"]) == (settled, None)
    if backend != "jax":
        assert done.stdout.splitlines()[1] == f"model     {run / 'model.keras'}"
        noise = [line for line in done.stderr.splitlines() if re.search("oneDNN|WARNING|I0000|plugin|Traceback", line)]
        assert noise == []

    loaded = subprocess.run(
        [sys.executable, "-c", LOADS, str(run / "model.keras"), str(place / "pictures" / "green" / "03.jpg")],
        env=environment(backend) if backend == "tensorflow" else hide_tensorflow(environment(backend)),
        capture_output=True,
        text=True,
    )
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout.split()[0] == "1"


@pytest.mark.slow  # `fit`, which does this, is killed in the quick ones as well
def test_killed_twice_it_ends_bit_for_bit_the_same_through_both_stretches(place):
    """The head alone for two epochs, then all of it: a kill in each, and the command line goes on by itself."""
    needs("jax")
    command = (*TRAIN, "--epochs", "5", "--learning-rate", "0.02", "--unfreeze-after", "2", "--early-stopping", "4")
    undisturbed, killed = place / "runs" / "undisturbed", place / "runs" / "killed"
    assert fitroom(place, *command, "--run-dir", str(undisturbed)).returncode == 0

    def epochs(number):
        history = killed / "history.json"
        return lambda: history.exists() and len(read(history)["loss"]) >= number

    code, _ = stopped(place, *command, "--run-dir", str(killed), when=epochs(1), by=signal.SIGKILL)
    assert code == -signal.SIGKILL
    resume = ("train", "--resume", "--model", "tiny.py:make_model")
    code, said = stopped(place, *resume, when=epochs(4), by=signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert f"resuming {Path('runs/killed')}" in said
    done = fitroom(place, *command, "--run-dir", "runs/killed")
    assert done.returncode == 0, done.stderr
    assert weights_of(killed) == weights_of(undisturbed)
    assert read(killed / "history.json") == read(undisturbed / "history.json")
    assert read(killed / "results.json") == read(undisturbed / "results.json")
    assert without_times(killed) == without_times(undisturbed)
    trained = read(undisturbed / "run.json")["model"]["variables"]
    assert [line.endswith("not trainable") for line in trained[:6]] == [False, False, True, True, True, True]

    again = fitroom(place, *command, "--run-dir", "runs/killed")
    assert (again.returncode, again.stdout.splitlines()[0]) == (
        0,
        "The run in runs/killed is finished: nothing is left to train.",
    )
    other = fitroom(place, *command, "--run-dir", "runs/killed", "--batch-size", "16", "--no-augment")
    assert other.returncode == 1
    assert "started with --batch-size 8, --augment; now it is --batch-size 16, --no-augment" in other.stderr


@pytest.mark.slow  # the harness in benchmarks/faults has disks of all sizes
def test_on_a_full_disk_it_says_so_and_with_room_made_it_completes(place):
    needs("torch")
    run = place / "runs" / "full"
    run.mkdir(parents=True)
    disk = small_disk(run, size_kib=60)
    again = f"mount -o remount,size=64m '{run}'"
    command = [sys.executable, "-m", "fitroom", *TRAIN, "--epochs", "1", "--run-dir", str(run)]
    script = ["sh", "-c", f'"$@"; echo first $?; {again} && "$@" && ls "{run}"', "sh", *command]
    done = run_on(f"{disk} && cd '{place}' && export KERAS_BACKEND=torch CUDA_VISIBLE_DEVICES=", script)
    assert "first 1" in done.stdout, done.stderr
    assert "could not be written: No space left on device" in done.stderr
    assert "this is unexpected" not in done.stderr
    assert {"model.keras", "results.json", "report.html"} <= set(done.stdout.split())


@pytest.mark.slow  # as above
def test_ctrl_c_saves_says_how_to_go_on_and_leaves_a_report(place):
    needs("torch")
    run = place / "runs" / "stopped"
    ready_made = ("--model", "mobilenetv2", "--weights", "none", "--image-size", "32", "--batch-size", "24")
    tight = ("--budget", "150MiB", "--keep", "micro-batch")
    command = ("train", "pictures", *ready_made, *tight, "--epochs", "2", "--run-dir", str(run))
    code, said = stopped(place, *command, when=(run / "history.json").exists, by=signal.SIGINT, backend="torch")
    assert code == 130
    assert f"to resume: fitroom train --resume --run-dir {run}" in said
    assert (run / "report.html").exists()
    plan = read(run / "job.json")["plan"]
    assert (plan["recipe"]["micro_batch"], "segments" in plan["recipe"]["remat"]) == (24, True)
    refused = fitroom(place, "predict", str(run), "pictures/red/00.jpg", backend="torch")
    assert refused.returncode == 1
    assert "not finished" in refused.stderr
    done = fitroom(place, "train", "--resume", "--run-dir", str(run), backend="torch")
    assert done.returncode == 0, done.stderr
    assert "resuming the run in" in done.stderr
    assert "estimating" not in done.stderr
    assert read(run / "job.json")["plan"] == plan
    assert len(read(run / "history.json")["loss"]) == 2
    assert read(run / "job.json")["model"]["weights"] == "none"


def test_predict_names_classes_and_skips_what_is_no_picture(place):
    needs("jax")
    run = place / "runs" / "whole-jax"
    if not (run / "model.keras").exists():
        assert fitroom(place, *TRAIN, *LEARNS, "--run-dir", str(run)).returncode == 0
    no_text = os.fsdecode(b"caf\xe9.jpg")
    shutil.copy(place / "pictures" / "green" / "00.jpg", place / no_text)
    done = fitroom(place, "predict", str(run), "pictures/red", no_text, "pictures/blue/01.jpg", "--top", "2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 20
    assert lines[-2].startswith(no_text)
    assert re.fullmatch(r"pictures/red/00.jpg   red +\d+\.\d %  \w+ +\d+\.\d %", lines[0])
    assert lines[-1].startswith("pictures/blue/01.jpg  blue")
    assert "broken.jpg" in done.stderr
    as_json = fitroom(
        place, "predict", str(run / "model.keras"), "pictures/green/00.jpg", no_text, "--json", "--batch-size", "1"
    )
    found, also = json.loads(as_json.stdout)["predictions"]
    assert (also["file"], also["top"]) == (no_text, found["top"])
    assert found["top"][0][0] == "green"
    assert sum(probability for _, probability in found["top"]) == pytest.approx(1, abs=1e-4)
    none = fitroom(place, "predict", str(run), "tiny.py")
    assert (none.returncode, none.stdout) == (1, "")
    assert "None of the 1 files" in none.stderr


def test_report_is_made_anew_and_its_path_printed(place):
    needs("jax")
    run = place / "runs" / "whole-jax"
    if not (run / "run.json").exists():
        pytest.skip("made by another test")
    (run / "report.html").unlink(missing_ok=True)
    done = fitroom(place, "report", "runs/whole-jax")
    assert (done.returncode, done.stdout) == (0, f"{Path('runs/whole-jax/report.html')}\n")
    assert (run / "report.html").exists()
    refused = fitroom(place, "report", "pictures")
    assert refused.returncode == 1
    assert "There is no run in pictures" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["train"], 2, "FOLDER is missing"),
        (["train", "nowhere"], 1, "There is no folder 'nowhere'"),
        (["train", "pictures", "--precision", "float8"], 1, "Unknown precision"),
        (["train", "pictures", "--keep", "remat,seed"], 1, "Unknown knob for --keep. Received: 'seed'"),
        (["train", "pictures", "--image-size", "small"], 2, "must be a whole number of at least 1, or auto"),
        (["train", "pictures", "--budget", "plenty"], 1, "A budget must be a size or the name of a card"),
        (["train", "pictures", "--gpu", "RTX 3600"], 1, "RTX 3060"),
        (["train", "pictures", "--weights", "a.weights.h5"], 1, "There is no file of weights 'a.weights.h5'"),
        (["train", "pictures", "--epochs", "3", "--unfreeze-after", "3"], 1, "--unfreeze-after must be less than"),
        (["train", "pictures", "--run-dir", "pictures"], 1, "must be a new or empty folder"),
        (["train", "pictures", "--run-dir", "tiny.py"], 1, "must be a folder. Received: tiny.py"),
        (["train", "pictures", "--learning-rate", "nan"], 2, "must be a number above 0. Received: 'nan'"),
        (["train", "pictures", "--seed", "-1"], 2, "must be a whole number from 0 to 4,294,967,295. Received: '-1'"),
        (["train", "pictures", "--run-dir", "/proc/x/y"], 1, "The run folder /proc/x/y cannot be written"),
        (["trian", "pictures"], 2, "No such command 'trian'. Did you mean 'train'?"),
        (["gpu"], 2, "Did you mean 'gpus'?"),
        (["--debag"], 2, "No such option"),
        (["train", "--resume", "--run-dir", "pictures"], 1, "There is no run of `fitroom train` in pictures"),
        (["predict", "nowhere", "pictures"], 1, "There is no file or folder 'nowhere'"),
        (["predict", "pictures", "nowhere.jpg"], 1, "There is no file 'nowhere.jpg'"),
    ],
)
def test_what_cannot_work_is_said_before_anything_slow_begins(place, arguments, code, said):
    program = (
        "import sys; from fitroom.cli.main import main\n"
        "try: main()\n"
        "finally: assert 'keras' not in sys.modules, 'a framework was imported'"
    )
    done = run_forked("-c", program, *arguments, backend=None, cwd=place, env=environment("jax"))
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert said in done.stderr
    assert "hint:" in done.stderr or code == 2


def test_an_optimizer_that_keras_does_not_know_is_refused_before_the_pictures_are_looked_at(place):
    needs("jax")
    done = fitroom(place, "train", "pictures", "--optimizer", "adan", "--run-dir", "misspelt")
    assert done.returncode == 1
    assert "did you mean 'adam'" in done.stderr
    assert "classes" not in done.stdout + done.stderr
    assert not (place / "misspelt").exists()


def make_finished(run: Path) -> None:
    """Files that a finished run has, whole as files go."""
    shutil.copytree(write_run(run.with_name("finished")), run, dirs_exist_ok=True, ignore=lambda *_: ["job.json"])
    with zipfile.ZipFile(run / "model.keras", "w") as archive:
        for member in ("config.json", "metadata.json", "model.weights.h5"):
            archive.writestr(member, b"{}")


def test_a_run_stays_on_its_backend_and_a_finished_one_as_it_is(place):
    """Planted: a run that was begun with KERAS_BACKEND=torch and no --backend, and is finished later."""
    needs("torch")
    needs("jax")
    run = place / "kept"
    run.mkdir()
    options = TrainOptions(folder="pictures", epochs=3, run_dir="kept").to_dict()
    (run / "job.json").write_text(json.dumps({"format": 1, "backend": "torch", "options": options}))
    command = ("train", "pictures", "--epochs", "3", "--run-dir", "kept")
    for other in (fitroom(place, *command), fitroom(place, "train", "--resume", "--run-dir", "kept")):
        assert other.returncode == 1
        assert "it was started with the torch backend; now it is the jax backend" in other.stderr
        assert "`KERAS_BACKEND=torch fitroom train --resume --run-dir kept` resumes it" in other.stderr
    make_finished(run)
    for same in (command, ("train", "--resume", "--run-dir", "kept"), (*command, "--backend", "pytorch")):
        assert "nothing is left to train" in fitroom(place, *same, backend="torch").stdout
    longer = fitroom(place, *command, "--epochs", "5", backend="torch")
    assert longer.returncode == 1
    assert "which is finished: it was started with --epochs 3; now it is --epochs 5" in longer.stderr
    assert "is not extended: another --run-dir starts a new one" in longer.stderr


def test_ctrl_c_before_there_is_a_run_is_said_once(place):
    needs("torch")
    run = place / "early"
    command = (*TRAIN, "--run-dir", str(run))
    code, said = stopped(place, *command, when=(run / "job.json").exists, by=signal.SIGINT, backend="torch")
    assert code == 130
    assert said.count("interrupted") == 1
    assert "could not be written" not in said


def test_weights_that_cannot_be_downloaded_leave_two_ways_out(place):
    needs("jax")
    unreachable = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "KERAS_HOME": str(place)}
    command = ("-m", "fitroom", "train", "pictures", "--model", "mobilenetv2", "--image-size", "32")
    env = environment("jax") | unreachable
    done = run_forked(*command, backend="jax", with_tensorflow=True, cwd=place, env=env)
    assert done.returncode == 1
    assert "The ImageNet weights of MobileNetV2 could not be downloaded" in done.stderr
    assert "--weights none" in done.stderr
    assert "--weights FILE" in done.stderr
    assert not (place / "runs" / "pictures-mobilenetv2").exists()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("fitroom tr", "train"), ("fitroom train --model xc", "xception"), ("fitroom train --gpu rtx-30", "rtx-3060")],
)
def test_the_shell_completes_commands_models_and_cards(typed, offered):
    words = typed.split()
    asked = {"_FITROOM_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    program = "from fitroom.cli.main import main; main()"
    done = run_forked("-c", program, backend=None, cwd=Path.cwd(), env=os.environ | asked)
    assert offered in [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_the_completion_of_bash_is_printed(place):
    done = fitroom(place, "completion", "bash")
    assert done.returncode == 0
    assert "_FITROOM_COMPLETE=bash_complete" in done.stdout
