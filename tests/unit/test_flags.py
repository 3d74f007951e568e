"""What the command line says: help within 80 columns, errors of flags with what was received and what is expected."""

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
