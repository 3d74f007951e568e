"""`job.json` of any version is read as far as it can be."""

import json
from pathlib import Path

from fitroom.runs.job import Job, JobBudget, JobModel, format_remat

FIXTURE = Path(__file__).parents[1] / "fixtures" / "run_folders" / "train" / "job.json"


def test_a_job_of_the_first_version_is_read_and_kept_as_it_is():
    values = json.loads(FIXTURE.read_text())
    job = Job.from_dict(values)
    assert job.values == values
    assert (job.backend, job.image_size, job.epochs, job.learning_rate) == ("torch", 32, 2, 0.001)
    assert (job.model.text, job.model.parameters) == ("tiny.py:make_model", 501)
    assert job.budget == JobBudget(bytes=256 * 2**20, source="given")
    assert (job.recipe.batch_size, job.recipe.micro_batch, job.recipe.remat) == (4, None, "none")
    assert (job.precision.policy, job.options["model"]) == ("float32", "tiny.py:make_model")
    assert job.data.counts["train"]["rose"] == 3
    assert list(job.classes) == values["classes"]


def test_what_is_missing_or_of_another_type_is_left_out():
    wrong = {"image_size": "large", "classes": [1, 2], "model": 7, "budget": {"bytes": True}, "epochs": None, "new": 1}
    job = Job.from_dict(wrong | {"device": "CPU"})
    assert (job.image_size, list(job.classes), job.epochs, job.device) == (None, [], None, "CPU")
    assert (job.model, job.budget) == (JobModel(), JobBudget())
    assert job.values["new"] == 1


def test_a_run_without_a_job_has_an_empty_one():
    assert not Job()
    assert Job.from_dict({"epochs": 1})


def test_a_remat_that_this_version_cannot_read_is_not_told():
    assert format_remat({"segments": [["a", "b"], ["c", "d"]]}) == "2 segments"
    assert format_remat({"layers": 3}) is None
