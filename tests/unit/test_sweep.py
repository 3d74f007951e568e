"""A sweep in a TOML file: which trainings it means, and what each is called."""

import pytest

from fitroom.classify.sweep import make_name, predict_bytes, read_sweep
from fitroom.errors import InputError

COMMON = 'folder = "."\nepochs = 2\n'


def read(tmp_path, text):
    (tmp_path / "sweep.toml").write_text(COMMON + text)
    return read_sweep(tmp_path / "sweep.toml")


def test_all_combinations_and_single_ones_are_trained(tmp_path):
    text = '[vary]\nbatch-size = [16, 32]\nmodel = ["xception", "vgg16"]\n[[trials]]\nfreeze = true\n'
    found = read(tmp_path, text)
    assert [one.name for one in found] == [
        "batch-size-16,model-xception",
        "batch-size-16,model-vgg16",
        "batch-size-32,model-xception",
        "batch-size-32,model-vgg16",
        "freeze-True",
    ]
    assert found[1].options == {"folder": ".", "epochs": 2, "batch_size": 16, "model": "vgg16"}


def test_without_anything_varied_it_is_one_training_whose_folds_have_a_folder_each(tmp_path):
    [training] = read(tmp_path, "")
    assert training.name == "train"
    runs = list(training.list_runs(tmp_path, 3))
    assert [one["fold"] for one in runs] == ["1/3", "2/3", "3/3"]
    assert [one["run_dir"] for one in runs] == [str(tmp_path / "train" / f"fold-{number}") for number in (1, 2, 3)]
    assert [one["run_dir"] for one in training.list_runs(tmp_path, None)] == [str(tmp_path / "train")]


def test_models_of_one_name_in_two_folders_have_a_folder_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "net.keras").touch()
    found = read(tmp_path, '[vary]\nmodel = ["a/net.keras", "b/net.keras"]\n')
    assert len({one.name for one in found}) == 2
    assert all(one.name.startswith("model-net.keras-") for one in found)


def test_a_long_name_is_cut_and_stays_its_own():
    names = {make_name({"weights": f"{'x' * 100}{number}"}) for number in range(3)}
    assert len(names) == 3
    assert max(map(len, names)) < 80


@pytest.mark.parametrize("budget", ["1GiB", "RTX 3060"])
def test_a_training_with_a_budget_is_predicted_to_take_it_and_the_context(budget):
    assert predict_bytes({"folder": ".", "budget": budget, "backend": "jax"}) > 2**30 + 700 * 2**20
    assert predict_bytes({"folder": "."}) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("folder = [", "cannot be read as a sweep"),
        ("epochs = 1", "does not say which images to train on"),
        ('folder = "nowhere"', "There is no folder 'nowhere'"),
        ('folder = "."\nepoch = 3', "did you mean 'epochs'"),
        ('folder = "."\nepochs = "three"', "`epochs` must be a whole number"),
        ('folder = "."\nvalidation = true', "`validation` must be a number"),
        ('folder = "."\nmodel = "xcepshun"', "xception"),
        ('folder = "."\n[vary]\nepochs = 3', "must have a list"),
        ('folder = "."\nvary = 3', "must be one table"),
        ('folder = "."\nrun-dir = "here"', "must not have 'run-dir'"),
        ('folder = "."\n[[trials]]\nepochs = 3\n[[trials]]\nepochs = 3', "the same training twice: epochs-3"),
    ],
)
def test_a_sweep_that_cannot_work_is_refused(tmp_path, text, words):
    (tmp_path / "sweep.toml").write_text(text)
    with pytest.raises(InputError) as raised:
        read_sweep(tmp_path / "sweep.toml")
    assert words.lower() in str(raised.value).lower()


def test_a_sweep_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read as a sweep: No such file"):
        read_sweep(tmp_path / "nothing.toml")
