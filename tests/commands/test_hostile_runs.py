"""Run folders of anybody: nothing in one is run as code, written through or waited for, and errors are clear."""

import contextlib
import json
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fitroom.classify import records
from fitroom.classify.options import TrainOptions
from fitroom.cli.run_place import choose_run
from fitroom.errors import InputError
from fitroom.files.archive import DamagedError, read_archive
from fitroom.keras_model.loading.keras_file import LARGEST_TEXT_BYTES, damage_of, read_model
from fitroom.report.run.page import render_run_page
from fitroom.runs.folder import RunFolder
from fitroom.runs.lock import FolderLock, is_locked, take_lock
from fitroom.runs.record import read_run
from fitroom.runs.run import open_run
from picture_runs import environment
from ready_process import run_forked
from sample_runs import write_run

EVIL = "open('code-was-run', 'w').close()\n\ndef make_model():\n    raise SystemExit\n"


def job_of(**options):
    """A `job.json` as a run of `fitroom train` has it."""
    kept = TrainOptions(**{"folder": "pictures", "run_dir": "run"} | options).to_dict()
    settled = {"precision": {"policy": "float32", "why": "asked for"}, "image_size": 32, "optimizer": "adam"}
    how = {"frozen_layers": None, "recipe": {"micro_batch": None}, "recipe_why": "", "plan": None}
    begun = {"command": ["fitroom", "train"], "begun": "2026-11-18T10:00:00+0000", "classes": ["a", "b"]}
    return {"format": 1, "backend": "torch", "options": kept} | settled | how | begun


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A stranger's run in `run/`, with code beside it and code that could be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    for path in ("run", "pictures/a", "pictures/b", "package"):
        (tmp_path / path).mkdir(parents=True)
    for path in ("run/evil.py", "package/evil.py"):
        (tmp_path / path).write_text(EVIL)
    return tmp_path


def whole_run(folder):
    """A finished run with all its files."""
    run = write_run(folder)
    job = json.loads((run / "job.json").read_text())
    (run / "job.json").write_text(json.dumps(job | job_of() | {"plan": job.get("plan")}))
    return run


def write_job(folder, job):
    (folder / "run" / "job.json").write_text(json.dumps(job))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"model": "run/evil.py:make_model"}, "--model run/evil.py:make_model"),
        ({"model": " run/evil.py:make_model\n"}, "--model run/evil.py:make_model"),
        ({"model": "package.evil:make_model"}, "--model package.evil:make_model"),
        ({"model": "run/lambda.keras", "unsafe": True}, "--unsafe"),
        ({"model": "run/evil.py:make_model", "unsafe": True}, "--model run/evil.py:make_model --unsafe"),
    ],
)
def test_resume_runs_no_code_that_the_command_line_does_not_name(folder, options, named):
    write_job(folder, job_of(**options))
    command = ("-m", "fitroom", "train", "--resume", "--run-dir", "run")
    done = run_forked(*command, backend=None, cwd=folder, env=environment("torch"))
    assert done.returncode == 1
    assert not (folder / "code-was-run").exists()
    assert "wants to run code" in done.stderr
    assert f"fitroom train --resume --run-dir run {named}" in done.stderr


def test_an_honest_resume_names_what_was_recorded_and_nothing_else_will_do(folder):
    write_job(folder, job_of(model="net.py:make_model", unsafe=True))
    given = {"backend": None, "model": "net.py:make_model", "unsafe": True, "run_dir": "run"}
    assert choose_run(given, given, resume=True).options["model"] == "net.py:make_model"
    for other, said in (({"model": "other.py:make"}, "started with --model net.py:make_model"), ({}, "wants to")):
        wrong = {"backend": None, "unsafe": True, "run_dir": "run"} | other
        with pytest.raises(InputError, match=said):
            choose_run(wrong, wrong, resume=True)


@pytest.mark.parametrize("name", ["lock", "log.jsonl", ".run.json.partial"])
def test_no_link_in_a_run_folder_leads_to_a_file_of_the_users(tmp_path, name):
    own = tmp_path / "precious.txt"
    own.write_text("precious")
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"format": 1, "state": "running", "epochs": 1}))
    (run / name).symlink_to(own)
    with contextlib.suppress(InputError), RunFolder.open(run, {"epochs": 1}) as opened:
        opened.log({"kind": "$(touch code-was-run)"})
    assert own.read_text() == "precious"


@pytest.mark.parametrize("name", ["run.json", "job.json", "lock"])
def test_a_pipe_in_a_run_folder_is_not_waited_for(folder, name):
    run = folder / "run"
    write_job(folder, job_of())
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    look = "import sys; from fitroom.runs.folder import RunFolder; from fitroom.classify import records\n"
    look += "records.read_job(RunFolder.open(sys.argv[1], {'epochs': 1}).path)"
    done = subprocess.run([sys.executable, "-c", look, str(run)], capture_output=True, text=True, timeout=900)
    assert "it is not a file" in done.stderr or name == "lock"


WRONG = ([], {}, "", "x", -1, 2**70, 1.5, True, None, [[]], {"a": []}, "\ud800")


def mutated(value, pick):
    """The same JSON with one value in it replaced, removed, or nested without end."""
    value = json.loads(json.dumps(value))
    holder, key = {"whole": value}, "whole"
    while isinstance(holder[key], dict | list) and holder[key] and pick.random() < 0.8:
        holder = holder[key]
        key = pick.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    if isinstance(holder, dict) and pick.random() < 0.2:
        del holder[key]
    else:
        holder[key] = pick.choice(WRONG)
    return value


@pytest.mark.parametrize("rounds", [80, pytest.param(400, marks=pytest.mark.slow)])
def test_wrong_types_in_the_records_of_a_run_are_clear_errors(folder, rounds):
    pick = random.Random(0)
    run = whole_run(folder / "whole")
    kept, job = (json.loads((run / name).read_text()) for name in ("run.json", "job.json"))
    told = 0
    for number in range(rounds):
        (run / "run.json").write_text(json.dumps(mutated(kept, pick) if number % 2 else kept))
        (run / "job.json").write_text(json.dumps(kept and (job if number % 2 else mutated(job, pick))))
        write_job(folder, mutated(job_of(), pick))
        for look in (_report, _resume, lambda _: _resume(folder / "run")):
            told += refused(look, run) is not None
    assert told > rounds // 4


def refused(look, run):
    """The clear error with which something cannot be read; any other is the test's."""
    try:
        look(run)
    except InputError as error:
        return str(error)
    return None


def _report(run):
    render_run_page(open_run(run))


def _resume(run):
    given = {"backend": None, "run_dir": str(run)}
    job = records.read_job(run)
    if job is not None:
        TrainOptions(**choose_run(given, given, resume=True).options)
        records.check_resumable(run, job)
    read_run(run / "run.json")


@pytest.mark.parametrize("name", ["run.json", "job.json", "history.json", "log.jsonl", "results.json"])
def test_json_that_is_nested_without_end_is_an_error_like_any_other(folder, name):
    run = whole_run(folder / "whole")
    (run / name).write_text("[" * 200_000)
    is_needed = name in ("run.json", "job.json")
    said = [refused(look, run) for look in (_report, _resume)]
    assert any("nested too deeply" in one for one in said if one) == is_needed
    (run / name).write_text('{"a":' * 300 + "1" + "}" * 300)
    assert any(refused(look, run) for look in (_report, _resume)) == is_needed


def test_a_model_file_is_refused_before_what_it_would_unpack_to_takes_the_memory(tmp_path):
    file = tmp_path / "bomb.keras"
    for member in ("config.json", "model.weights.h5"):
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(member, "w") as written:
            for _ in range(5 if member == "config.json" else 20):
                written.write(bytes(LARGEST_TEXT_BYTES // 4))
        with pytest.raises(InputError, match=f"its {member} unpacks to"):
            read_model(str(file), unsafe=False)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("config.json", "[" * 200_000)
    with pytest.raises(InputError, match="nested too deeply"):
        read_model(str(file), unsafe=False)


def test_a_checkpoint_that_unpacks_to_more_than_it_has_is_damaged(tmp_path):
    file = tmp_path / "00000001.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("index.json", bytes(10**6))
    with pytest.raises(DamagedError, match="compressed"):
        read_archive(file)


def test_a_run_is_finished_only_with_a_whole_model_history_and_results(tmp_path):
    file = tmp_path / "model.keras"
    with zipfile.ZipFile(file, "w") as archive:
        for member in ("config.json", "metadata.json", "model.weights.h5"):
            archive.writestr(member, bytes(1000))
    whole = file.read_bytes()
    assert damage_of(file) is None
    (tmp_path / "results.json").write_text(json.dumps({"split": "test", "metrics": {}}))
    (tmp_path / "history.json").write_text('{"loss": [1.0')
    assert not records.is_finished(tmp_path)
    (tmp_path / "history.json").write_text('{"loss": [1.0]}')
    assert records.is_finished(tmp_path)
    for torn in (b"", whole[:-500], whole[:1200] + bytes(200) + b"x" + whole[1401:]):
        file.write_bytes(torn)
        assert not records.is_finished(tmp_path)
    file.write_bytes(whole)
    (tmp_path / "results.json").write_text("{}")
    assert not records.is_finished(tmp_path)


def test_a_job_lends_its_lock_to_the_trainings_in_it_and_to_nobody_else(tmp_path):
    path = tmp_path / "lock"
    lock = FolderLock(path)
    with pytest.raises(InputError, match="in use"):
        FolderLock(path)
    with lock.lend(path):
        borrowed = take_lock(path)
        with pytest.raises(InputError, match="in use"):  # one training at a time
            take_lock(path)
        assert is_locked(path)
        borrowed.release()
        assert is_locked(path) is False  # for the job itself, which writes the report
        take_lock(path).release()
    ask = f"from pathlib import Path; from fitroom.runs.lock import is_locked; print(is_locked(Path({str(path)!r})))"
    assert subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True).stdout == "True\n"
    lock.release()
    assert is_locked(path) is False


def test_the_command_that_names_a_report_writes_it(folder):
    run = whole_run(folder / "whole")
    (run / "report.html").unlink(missing_ok=True)
    with zipfile.ZipFile(run / "model.keras", "w") as archive:
        for member in ("config.json", "metadata.json", "model.weights.h5"):
            archive.writestr(member, b"{}")
    command = [sys.executable, "-m", "fitroom", "train", "--resume", "--run-dir", str(run)]
    for torn in (None, "<html>"):
        if torn:
            (run / "report.html").write_text(torn)
        done = subprocess.run(command, env=environment("torch"), capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr
        assert f"report    {Path(run / 'report.html')}" in done.stdout
        assert (run / "report.html").read_text().rstrip().endswith("</html>")
