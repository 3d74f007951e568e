"""What the command line says: help within 80 columns, errors of flags with what was received and what is expected."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from fitroom.cli.main import COMMANDS, fitroom, report
from fitroom.cli.option_types import Number, WholeNumber
from fitroom.errors import InputError


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_fits_into_80_columns(command):
    done = CliRunner().invoke(fitroom, [*command, "--help"], terminal_width=80)
    assert done.exit_code == 0
    assert [line for line in done.output.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize(
    ("kind", "received", "said"),
    [
        (WholeNumber(min=1), "x", "must be a whole number of at least 1. Received: 'x'."),
        (WholeNumber(min=1), "2.5", "must be a whole number of at least 1. Received: '2.5'."),
        (WholeNumber(0, 2**32 - 1), "-1", "must be a whole number from 0 to 4,294,967,295. Received: '-1'."),
        (Number(min=0, min_open=True), "0", "must be a number above 0. Received: '0'."),
        (Number(min=0, min_open=True), "nan", "must be a number above 0. Received: 'nan'."),
        (Number(min=0, min_open=True), "inf", "must be a number above 0. Received: 'inf'."),
        (Number(0, 1, max_open=True), "1", "must be a number of at least 0 and below 1. Received: '1'."),
    ],
)
def test_a_wrong_number_is_refused_with_what_is_expected(kind, received, said):
    with pytest.raises(click.BadParameter) as refused:
        kind.convert(received, None, None)
    assert refused.value.message == said


def test_right_numbers_are_taken():
    assert WholeNumber(min=1).convert("7", None, None) == 7
    assert Number(0, 1, max_open=True).convert("0.25", None, None) == 0.25


def test_arguments_of_python_in_an_error_become_the_flags_of_the_command(capsys):
    noted, words = {}, ["estimate", "xception", "--accumulate", "2", "--micro-batch", "4"]
    with pytest.raises(InputError) as refused:
        fitroom.main(words, standalone_mode=False, obj=noted)
    report(refused.value, noted["flags"])
    said = capsys.readouterr().err
    assert "error: --micro-batch and --accumulate both split the batch. Received both." in said
    assert "hint: take --micro-batch" in said


def test_parameters_of_a_users_function_keep_their_names(capsys):
    report(InputError("net.py:make takes no `classes`.", hint="as in `model.fit`"), {"run_dir": "--run-dir"})
    assert "net.py:make takes no `classes`." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ["estimate", "--inference", "--optimizer", "sgd"],
            "--optimizer is of training and cannot be used",
        ),
        (
            ["estimate", "--inference", "--remat", "blocks"],
            "--remat is of training and cannot be used",
        ),
        (["estimate", "--timeline"], "--timeline needs --json"),
        (["plan", "--gpu", "all", "--all-recipes"], "--all-recipes is for one card and cannot be used with --gpu all"),
        (["plan", "--gpus", "2x T4", "--all-recipes"], "--all-recipes is for one card and cannot be used with --gpus"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(flags, said):
    with pytest.raises(click.UsageError, match=said):
        fitroom.main([*flags, "xception"], standalone_mode=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--freeze --unfreeze-after 2", "leave it or --unfreeze-after out"),
        ("--fold 1/5 --validation 0.3", "leave --validation out"),
        ("--cache-limit 1GiB", "--cache-limit is of --cache"),
    ],
)
def test_flags_of_train_of_which_one_would_do_nothing_are_refused(words, said):
    with pytest.raises(click.UsageError, match=said):
        fitroom.main(["train", "flowers", *words.split()], standalone_mode=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train . --validation 0.6 --test 0.5 --run-dir r", "validation=0.6, test=0.5"),
        ("train . --cache ram --cache-limit much --run-dir r", "positive number with a unit"),
        ("train . --fold 6/5 --run-dir r", "K from 1 to N"),
        ("train . --fold x --run-dir r", "written K/N"),
        ("doctor --batch-size 8", "Without --data no input is timed. Received: --batch-size"),
        ("doctor --data . --run-dir runs", "--run-dir is for checking the machine"),
    ],
)
def test_wrong_values_are_refused_before_anything_is_read(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=said):
        fitroom.main(words.split(), standalone_mode=False)


def test_a_plot_of_a_kind_that_cannot_be_drawn_is_refused_before_the_work():
    with pytest.raises(click.BadParameter, match=r"must end in .svg or .png"):
        fitroom.main(["lean", "xception", "--plot", "a.html"], standalone_mode=False)


def test_the_list_of_cards_fits_into_80_columns():
    lines = CliRunner().invoke(fitroom, ["gpus"]).stdout.splitlines()
    assert len(lines) > 100
    assert max(map(len, lines)) <= 80


def test_a_flag_of_run_behind_the_script_is_said_to_be_the_scripts(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("import sys\nprint(sys.argv[1:])\n")
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "fitroom", "run", "train.py", "--micro-batch", "8", "--lr=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "['--micro-batch', '8', '--lr=1']\n"
    assert "--micro-batch is passed to train.py" in done.stderr
    assert "--lr" not in done.stderr
