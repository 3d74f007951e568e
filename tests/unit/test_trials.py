"""Trials without a framework: settings and their identity, rows on disk, how many run at once, what is said."""

import functools
import json
import math
import threading
import time
from pathlib import Path

import pytest

import fitroom
from fitroom.loops.trials.plain import make_key
from fitroom.loops.trials.room import Room
from fitroom.loops.trials.table import Trial, Trials
from fitroom.report.compare.trials import render_trials
from fitroom.report.shared.sheet import render_plain


def run(function, settings, folder, **options):
    return fitroom.trials(function, settings, folder, **({"show": False} | options))


def square(a):
    return {"square": a * a}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"a": 1}, "must be a list of dicts"),
        ([1, 2], "must be a dict of the function's arguments"),
        ([], "is empty"),
        ([{"a": 1}, {"a": threading.Lock()}], "In number 2 'a' is of type _thread.lock"),
        ([{"a": lambda: 1}], "In number 1 'a' is of type builtins.function"),
        ([{"a": {"b": [1, {1, 2}]}}], "'a'['b'][1] is of type builtins.set"),
        ([{"a": {1: 2}}], "has the key 1"),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], "The settings number 1 and 2 are the same"),
    ],
)
def test_settings_that_cannot_be_written_down_are_refused_before_anything_starts(settings, words, tmp_path):
    with pytest.raises(fitroom.InputError) as raised:
        run(square, settings, tmp_path / "trials")
    assert words in str(raised.value)
    assert not (tmp_path / "trials").exists()


def test_a_function_that_cannot_travel_is_refused_before_anything_starts(tmp_path):
    lock = threading.Lock()

    def train(a):
        with lock:
            return a

    with pytest.raises(fitroom.InputError, match="cannot be sent to another process: TypeError"):
        run(train, [{"a": 1}], tmp_path / "trials")
    assert not (tmp_path / "trials").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"time_limit": 0}, "`time_limit`"),
        ({"at_once": 0}, "`at_once`"),
        ({"again": "yes"}, "`again`"),
        ({"budget": "much"}, "A size must be"),
        ({"device_bytes": [1]}, "`device_bytes`"),
    ],
)
def test_wrong_options_are_refused(options, words, tmp_path):
    with pytest.raises(fitroom.InputError, match=words):
        run(square, [{"a": 1}], tmp_path, **options)


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(fitroom.InputError, match=r"with thesis\.tex"):
        run(square, [{"a": 1}], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_lambdas_closures_and_partials_run_and_results_of_numpy_are_plain(tmp_path):
    import numpy as np

    offset = 10
    shared = np.arange(4)

    def train(a, power):
        return {"sum": shared.sum() + offset, "array": np.float32(0.5), "nan": math.nan, "power": (a**power, None)}

    table = run(functools.partial(train, power=2), [{"a": 3}], tmp_path / "partial")
    assert table[0].result == {"sum": 16, "array": 0.5, "nan": None, "power": [9, None]}
    assert run(lambda a: a + offset, [{"a": 3}], tmp_path / "lambda")[0].result == 13


def test_rows_are_json_lines_and_nothing_on_disk_is_pickled(tmp_path):
    run(square, [{"a": 2}], tmp_path)
    [line] = (tmp_path / "trials.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert row["settings"] == {"a": 2}
    assert row["result"] == {"square": 4}
    assert row["state"] == "finished"
    assert row["key"] == make_key({"a": 2})
    files = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(files) == ["lock", row["log"], "trials.jsonl"]


def test_the_same_call_repeats_nothing_and_more_settings_run_what_is_missing(tmp_path, capfd):
    marks = tmp_path / "marks"
    marks.mkdir()

    def train(a):
        (marks / f"{a}-{time.monotonic_ns()}").touch()
        if a == 2:
            raise ValueError("two")
        return a

    folder = tmp_path / "trials"
    first = fitroom.trials(train, [{"a": 1}, {"a": 2}], folder)
    again = fitroom.trials(train, [{"a": 3}, {"a": 2}, {"a": 1}], folder)
    assert [(row.settings["a"], row.state, row.is_earlier) for row in again] == [
        (3, "finished", False),
        (2, "failed", True),
        (1, "finished", True),
    ]
    assert first[1].error == again[1].error == "ValueError: two"
    assert again[1].log.read_text().strip().endswith("ValueError: two")
    assert len(list(marks.iterdir())) == 3
    said = capfd.readouterr().err
    assert "trial 1 of 2 (a=1): finished" in said
    assert "2 of 3 trials are in" in said
    assert "1 of them did not finish; again='failed'" in said


def test_a_changed_function_repeats_what_failed_and_says_what_was_kept(tmp_path, capfd):
    def before(a):
        if a == 2:
            raise fitroom.InputError("a bug", hint="mend it")
        return "before"

    def after(a):
        return "after"

    failed = fitroom.trials(before, [{"a": 1}, {"a": 2}], tmp_path, show=False)[1]
    assert failed.error == "a bug (hint: mend it)"
    table = fitroom.trials(after, [{"a": 1}, {"a": 2}], tmp_path)
    assert [row.result for row in table] == ["before", "after"]
    assert "the function has changed since 1 of them finished" in capfd.readouterr().err
    assert [row.result for row in run(after, [{"a": 1}], tmp_path, again="all")] == ["after"]


def test_a_row_cut_short_by_a_kill_is_made_again(tmp_path):
    run(square, [{"a": 1}], tmp_path)
    file = tmp_path / "trials.jsonl"
    file.write_bytes(file.read_bytes() + b'{"key": "abc", "settings": {"a"')
    table = run(square, [{"a": 1}, {"a": 2}], tmp_path)
    assert [row.result["square"] for row in table] == [1, 4]
    assert [row.is_earlier for row in run(square, [{"a": 1}, {"a": 2}], tmp_path)] == [True, True]


def test_as_many_run_at_once_as_their_predicted_bytes_allow_and_none_that_cannot_fit(tmp_path):
    started, running = tmp_path / "started", tmp_path / "running"
    started.mkdir()
    running.mkdir()

    def train(size):
        (running / str(size)).touch()
        (started / str(size)).touch()
        while len(list(started.iterdir())) < 2:  # which never ends unless two run at once
            time.sleep(0.02)
        together = len(list(running.iterdir()))
        (running / str(size)).unlink()
        return together

    settings = [{"size": 41}, {"size": 42}, {"size": 43}, {"size": 101}]
    table = run(
        train,
        settings,
        tmp_path / "trials",
        device_bytes=lambda one: one["size"] * 2**20,
        budget="100MiB",
        host_bytes="1MiB",
        at_once=4,
        time_limit=60,
    )
    assert [row.state for row in table] == ["finished", "finished", "finished", "does not fit"]
    assert max(row.result for row in table.finished) <= 2
    assert "predicted to need 101.0 MiB, and trials may take 100.0 MiB" in table[3].error
    assert table[3].log is None
    assert [row.device_bytes for row in table] == [one["size"] * 2**20 for one in settings]


def test_a_prediction_that_fails_is_said_and_its_trial_runs_alone(tmp_path, capfd):
    def predict(one):
        if one["a"] == 1:
            raise KeyError("units")
        return 1000

    table = fitroom.trials(square, [{"a": 1}, {"a": 2}], tmp_path, device_bytes=predict, budget="1GiB")
    assert [row.device_bytes for row in table] == [None, 1000]
    assert len(table.finished) == 2
    assert "no prediction for trial 1, which will run alone: KeyError: 'units'" in capfd.readouterr().err


def test_on_a_card_a_trial_may_take_more_than_predicted_and_that_much_is_kept_for_it():
    room = Room(budget="4GiB", host_bytes=1, at_once=8)
    room.has_card = True
    assert room.find_cap(2**30) == 2**30 + 2**29
    assert [room.try_take(2**30) is not None for _ in range(3)] == [True, True, False]
    assert room.fits(4 * 2**30)
    assert room.find_cap(4 * 2**30) == 4 * 2**30


def test_without_a_prediction_trials_wait_for_each_other_unless_asked():
    alone = Room(budget=100, host_bytes=1)
    seat = alone.try_take(None)
    assert alone.try_take(None) is None
    assert alone.try_take(10) is None
    alone.give_back(seat)
    predicted = alone.try_take(60)
    assert alone.try_take(60) is None
    assert alone.try_take(40) is not None
    assert alone.try_take(None) is None
    alone.give_back(predicted)
    two = Room(budget=100, host_bytes=1, at_once=2)
    assert two.try_take(None)
    assert two.try_take(None)
    assert two.try_take(None) is None


def test_the_hosts_memory_bounds_how_many_run_at_once():
    room = Room(budget="1PB".replace("P", "T"), host_bytes="1000GB", at_once=8)
    assert room.try_take(1)
    assert room.try_take(1) is None


def test_the_table_finds_the_best_and_shows_itself_within_80_columns():
    rows = [
        Trial(
            number=number,
            settings={"model": "xception", "rate": 0.1**number},
            state="finished",
            result={"loss": [1.0, 1.0 / number], "accuracy": 0.5 + 0.1 * number},
            seconds=65.0,
            peak_bytes=2**30,
        )
        for number in (1, 2)
    ]
    lost = {"model": "xception", "rate": 1.0}
    rows.append(Trial(number=3, settings=lost, state="timed out", error="It took longer.", log=Path("logs/0003.log")))
    table = Trials(tuple(rows), Path("runs/rates"))
    assert table.best("accuracy").number == 2
    assert table.best("loss").number == 1, "the last epoch counts"
    assert table.best("accuracy", highest=False).number == 1
    with pytest.raises(fitroom.InputError, match=r"'precision'[^!]*: accuracy, loss"):
        table.best("precision")
    with pytest.raises(fitroom.InputError, match="none of the 1 trials finished; the first timed out: It took longer"):
        Trials((rows[2],), Path("runs/rates")).best("accuracy")
    text = render_plain(render_trials(table))
    assert max(map(len, text.splitlines())) <= 80
    assert "2 of 3 trials finished; in runs/rates" in text
    assert "model" not in text
    assert "3  timed out: It took longer." in text
    assert str(table) == text
    assert "<td>timed out</td>" in table._repr_html_()


def test_a_function_that_was_called_already_is_refused_with_what_to_write(tmp_path):
    with pytest.raises(fitroom.InputError, match=r"must be callable[^!]*without calling it"):
        run(square(2), [{"a": 2}], tmp_path)


def test_what_did_not_fit_is_considered_again_when_there_is_more_memory(tmp_path):
    settings = [{"a": 2}]
    assert [row.state for row in run(square, settings, tmp_path, device_bytes=200, budget=100)] == ["does not fit"]
    assert [row.state for row in run(square, settings, tmp_path, device_bytes=200, budget=300)] == ["finished"]


def test_a_module_that_starts_trials_when_it_is_imported_does_not_start_them_without_end(tmp_path, monkeypatch):
    (tmp_path / "starts_trials.py").write_text(
        "import fitroom\n\n\ndef train(a):\n    return a\n\n\n"
        f"table = fitroom.trials(train, [{{'a': 1}}], {str(tmp_path / 'trials')!r}, show=False)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import starts_trials

    assert "started by the import of the module" in starts_trials.table[0].error
