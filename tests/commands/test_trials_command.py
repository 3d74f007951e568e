"""`fitroom trials` as it is typed: folds of a small training, one that fails, the comparison, resuming."""

import json

import pytest

from picture_runs import fitroom, make_pictures, read
from processes import needs

SWEEP = """
folder = "pictures"
model = "tiny.py:make_model"
image-size = 32
batch-size = 16
epochs = 1
augment = false

[[trials]]
learning-rate = 0.02

[[trials]]
model = "tiny.py:four_classes"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_pictures(tmp_path_factory.mktemp("trials"), count=8)


@pytest.fixture(scope="module")
def done(place):
    needs("torch")
    (place / "sweep.toml").write_text(SWEEP)
    return fitroom(place, "trials", "sweep.toml", "--folds", "2", "--json", "--at-once", "2", backend="torch")


def test_folds_are_trained_and_compared_and_one_training_that_fails_stops_no_other(place, done):
    assert done.returncode == 1, done.stderr
    assert "2 of 4 runs did not finish; runs/sweep/model-tiny.py-four-classes/fold-1 is the first" in done.stderr
    assert "one per class, (None, 3)" in done.stderr
    found = json.loads(done.stdout)
    assert [row["state"] for row in found["trials"]] == ["finished", "finished", "failed", "failed"]
    [training] = found["trainings"]
    assert training["name"] == "learning-rate-0.02"
    assert training["accuracy"]["count"] == 2
    assert training["accuracy"]["deviation"] is not None
    assert (place / found["page"]).read_text().rstrip().endswith("</html>")
    folds = [read(place / run / "job.json") for run in training["runs"]]
    assert [job["options"]["fold"] for job in folds] == ["1/2", "2/2"]
    assert [sum(job["data"]["counts"]["validation"].values()) for job in folds] == [12, 12]
    assert folds[0]["command"][:3] == ["fitroom", "train", "pictures"]


def test_what_a_training_prints_is_in_its_log(place, done):
    logs = sorted((place / "runs" / "sweep" / "logs").glob("0001-*.log"))
    assert "epoch 1/1 done" in logs[0].read_text()
    assert "epoch 1/1" not in done.stderr


def test_the_same_command_trains_nothing_again(place, done):
    again = fitroom(place, "trials", "sweep.toml", "--folds", "2", backend="torch")
    assert "4 of 4 trials are in runs/sweep and are not repeated" in again.stderr
    assert "learning-rate-0.02" in again.stdout
    assert "page      runs/sweep/compare.html" in again.stdout


def test_the_runs_are_listed_and_compared(place, done):
    listed = fitroom(place, "runs", backend="torch")
    assert listed.stdout.count("finished") == 2
    assert "1/1" in listed.stdout
    folds = [f"runs/sweep/learning-rate-0.02/fold-{number}" for number in (1, 2)]
    compared = fitroom(place, "compare", *folds, "--html", "folds.html", "--json", backend="torch")
    assert [one["runs"] for one in json.loads(compared.stdout)] == [folds]
    assert "2 runs" in (place / "folds.html").read_text()


def test_a_sweep_that_cannot_work_is_refused_before_anything_starts(place):
    (place / "wrong.toml").write_text('folder = "pictures"\nepoch = 3')
    refused = fitroom(place, "trials", "wrong.toml", backend="torch")
    assert refused.returncode == 1
    assert "Unknown option in wrong.toml. Received: 'epoch'" in refused.stderr
    assert "did you mean 'epochs'" in refused.stderr
    assert not (place / "runs" / "wrong").exists()


def test_a_folder_without_runs_says_so(place):
    assert "There is no run in pictures" in fitroom(place, "compare", "pictures", backend="torch").stderr
    assert "There is no folder 'nothing'" in fitroom(place, "compare", "nothing", backend="torch").stderr
    assert "there are no runs in pictures" in fitroom(place, "runs", "pictures", backend="torch").stderr
    assert "There is no folder 'nothing'" in fitroom(place, "runs", "nothing", backend="torch").stderr
