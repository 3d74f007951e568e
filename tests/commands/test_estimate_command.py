"""`fitroom estimate` as it is typed: the real command, the real compiler, small models."""

import gzip
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fitroom.memory import cache as kept
from processes import needs, needs_the_compiler
from ready_process import run_forked

MODELS = '''
import os

import keras
from keras import layers


def make_model(size=32):
    """Shapes are what counts: values are not drawn."""
    x = inputs = keras.Input((size, size, 3))
    for number, filters in enumerate((16, 32)):
        x = layers.Conv2D(filters, 3, padding="same", kernel_initializer="zeros", name=f"conv_{number}")(x)
        x = layers.BatchNormalization(name=f"norm_{number}")(x)
        x = layers.Activation("gelu", name=f"gelu_{number}")(x)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    x = layers.Dense(10, activation="softmax", kernel_initializer="zeros", name="head")(x)
    return keras.Model(inputs, x, name="small")


def open_size():
    return make_model(size=None)


def not_built():
    return keras.Sequential([layers.Dense(3)])


class Chatty(keras.Model):
    def train_step(self, state, data):
        print("tracing the step")
        os.system("echo from a program it starts")
        return super().train_step(state, data)


def chatty():
    print("building the model")
    inputs = keras.Input((8,))
    model = Chatty(inputs, layers.Dense(2, kernel_initializer="zeros")(inputs))
    model.compile("sgd", "mse")
    return model


def raises():
    raise RuntimeError("the data is not there")


def returns_a_layer():
    return layers.Dense(3)


def needs_arguments(width):
    return make_model(width)


def leaves():
    raise SystemExit("bye")
'''
SMALL = "models.py:make_model"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the commands of this module run."""
    folder = tmp_path_factory.mktemp("estimates")
    (folder / "models.py").write_text(MODELS)
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """Estimates kept for all tests of this run, whichever process they are in."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache_of_estimates"


@pytest.fixture(scope="module")
def shell(folder, cache) -> dict[str, str]:
    """The environment of a shell where nothing is set."""
    unset = ("KERAS_BACKEND", "FITROOM_NO_CACHE", "TF_ENABLE_ONEDNN_OPTS", "TF_CPP_MIN_LOG_LEVEL")
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    chosen = {"FITROOM_CACHE_DIR": str(cache), "KERAS_HOME": str(folder / "keras"), "COLUMNS": "100"}
    return inherited | chosen


@pytest.fixture(scope="module")
def run(folder, shell):
    """Run `fitroom estimate`."""

    def run(*arguments: str, before: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fitroom", *before, "estimate", *arguments],
            cwd=folder,
            env=shell | environment,
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


@pytest.fixture(scope="module")
def run_on_jax(folder, shell):
    """Run `fitroom estimate --backend jax`, without the seconds in which Python imports Keras."""
    needs("jax")

    def run_on_jax(*arguments: str, **options: bool | str) -> subprocess.CompletedProcess[str]:
        own_compiler = options.pop("own_compiler", False)
        command = ("-m", "fitroom", "estimate", *arguments, "--backend", "jax")
        return run_forked(*command, backend="jax", cwd=folder, env=shell | options, own_compiler=own_compiler)

    return run_on_jax


@pytest.fixture(scope="module")
def refused(folder, shell):
    """Run `fitroom estimate` with what it refuses before it imports Keras."""
    return lambda *arguments: run_forked("-m", "fitroom", "estimate", *arguments, backend=None, cwd=folder, env=shell)


@pytest.fixture(scope="module")
def estimate(run_on_jax):
    """The JSON of an estimate on JAX, for a T4 if for no other, computed once for all who ask the same."""
    needs_the_compiler()
    kept: dict[tuple[str, ...], dict] = {}

    def estimate(*arguments: str) -> dict:
        if arguments not in kept:
            card = () if "--gpu" in arguments else ("--gpu", "T4")
            done = run_on_jax(*arguments, *card, "--json")
            assert done.returncode == 0, done.stderr
            kept[arguments] = json.loads(done.stdout)
        return kept[arguments]

    return estimate


@pytest.fixture(scope="module")
def small(estimate):
    return estimate(SMALL, "--batch-size", "16")


# What a result is.


def test_json_has_the_three_sizes_and_what_they_are_for(small):
    assert all(type(small[name]) is int for name in ("peak_bytes", "required_bytes", "device_bytes", "limit_bytes"))
    assert small["peak_bytes"] < small["required_bytes"] < small["device_bytes"] < small["limit_bytes"]
    assert small["fits"] is True
    assert {
        key: small[key] for key in ("model", "backend", "gpu", "batch_size", "precision", "method", "training")
    } == {
        "model": "small",
        "backend": "jax",
        "gpu": "T4",
        "batch_size": 16,
        "precision": "float32",
        "method": "compiled",
        "training": True,
    }
    assert type(small["seconds"]) is float
    assert {"keras", "jax", "jaxlib", "compiler"} <= set(small["versions"])
    assert "timeline" not in small


def test_the_split_by_kind_names_all_kinds_and_sums_to_the_peak(small):
    kinds = ["weights", "gradients", "optimizer", "activations", "workspace", "input", "other"]
    assert list(small["by_kind"]) == kinds
    assert all(type(size) is int for size in small["by_kind"].values())
    assert sum(small["by_kind"].values()) == small["peak_bytes"]
    pictures = 16 * 32 * 32 * 3 * 4
    assert pictures <= small["by_kind"]["input"] <= pictures + 512
    assert small["by_kind"]["activations"] >= 16 * 32 * 32 * 32 * 4


def test_the_split_by_layer_is_largest_first_and_sums_to_the_peak(small):
    sizes = [row["bytes"] for row in small["by_layer"]]
    assert all(set(row) == {"layer", "bytes"} for row in small["by_layer"])
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == small["peak_bytes"]
    assert {"conv_0", "conv_1", "norm_1", "head"} <= {row["layer"] for row in small["by_layer"]}


def test_the_largest_phase_is_the_peak(small):
    assert list(small["by_phase"]) == ["forward", "backward", "update"]
    assert max(small["by_phase"].values()) == small["peak_bytes"]
    assert all(0 < size <= small["peak_bytes"] for size in small["by_phase"].values())


@pytest.mark.slow
def test_layers_of_a_ready_made_model_account_for_nearly_all_of_the_peak(estimate):
    found = estimate("mobilenetv2", "--image-size", "96", "--batch-size", "4")
    nobodys = sum(row["bytes"] for row in found["by_layer"] if row["layer"].startswith("("))
    assert nobodys <= 0.05 * found["peak_bytes"]
    assert found["recipe"] == {"image_size": 96}
    assert any("Adam" in note for note in found["notes"])


def test_text_names_the_three_sizes_and_says_whether_it_fits(run, small):
    done = run(SMALL, "--batch-size", "16", "--backend", "jax", "--gpu", "T4")
    assert done.returncode == 0
    for words in ("peak", "needs at least", "takes of the card", "fits", "activations", "conv_1", "backward"):
        assert words in done.stdout
    assert f"{small['peak_bytes'] / 1024**2:.1f} MiB" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.slow
def test_several_batch_sizes_grow_and_keep_their_order(estimate):
    found = estimate(SMALL, "--batch-size", "16,4,64")
    assert set(found) == {"estimates", "refusals"}
    assert found["refusals"] == []
    peaks = {each["batch_size"]: each["peak_bytes"] for each in found["estimates"]}
    assert list(peaks) == [16, 4, 64]
    assert peaks[4] < peaks[16] < peaks[64]
    first = next(each for each in found["estimates"] if each["batch_size"] == 16)
    assert first["peak_bytes"] == estimate(SMALL, "--batch-size", "16")["peak_bytes"]


def test_several_batch_sizes_are_a_table_in_text(run_on_jax):
    needs_the_compiler()
    done = run_on_jax(SMALL, "--batch-size", "4,16", "--gpu", "T4")
    assert done.returncode == 0
    assert "batch" in done.stdout
    assert done.stdout.count("MiB  fits") == 2


def test_the_timeline_comes_on_request(run_on_jax, refused, small):
    done = run_on_jax(SMALL, "--batch-size", "16", "--gpu", "T4", "--json", "--timeline")
    timeline = json.loads(done.stdout)["timeline"]
    assert sum(size for size, *_ in timeline["buffers"]) >= small["peak_bytes"]
    assert refused(SMALL, "--timeline").returncode == 2


@pytest.mark.parametrize(
    ("suffix", "start"),
    [
        ("html", b"<!doctype html"),
        pytest.param("png", b"\x89PNG", marks=pytest.mark.slow),
        pytest.param("svg", b"<?xml", marks=pytest.mark.slow),
    ],
)
def test_a_plot_is_written_beside_the_result(run_on_jax, folder, small, suffix, start):
    done = run_on_jax(SMALL, "--batch-size", "16", "--gpu", "T4", "--json", "--plot", f"step.{suffix}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["peak_bytes"] == small["peak_bytes"]
    assert (folder / f"step.{suffix}").read_bytes()[: len(start)].lower() == start.lower()


def test_what_the_users_code_prints_does_not_reach_stdout(run_on_jax):
    needs_the_compiler()
    done = run_on_jax("models.py:chatty", "--json")
    assert json.loads(done.stdout)["model"].startswith("chatty")
    for words in ("building the model", "tracing the step", "from a program it starts"):
        assert words in done.stderr


# What changes it.


def test_inference_takes_less_than_training(estimate, small):
    found = estimate(SMALL, "--batch-size", "16", "--inference")
    assert found["training"] is False
    assert found["peak_bytes"] < small["peak_bytes"]
    assert found["by_kind"]["optimizer"] == 0
    assert found["by_kind"]["gradients"] == 0


def test_half_precision_takes_less(estimate):
    on_a100 = (SMALL, "--batch-size", "16", "--gpu", "A100 40GB")  # a T4 has no bfloat16 of its own
    whole, half = estimate(*on_a100), estimate(*on_a100, "--precision", "mixed_bfloat16")
    assert (whole["precision"], half["precision"]) == ("float32", "mixed_bfloat16")
    assert half["by_kind"]["activations"] < whole["by_kind"]["activations"]
    assert half["peak_bytes"] < whole["peak_bytes"]


def test_sgd_takes_less_than_adam(estimate, small):
    found = estimate(SMALL, "--batch-size", "16", "--optimizer", "sgd")
    assert found["by_kind"]["optimizer"] < small["by_kind"]["optimizer"]
    assert found["peak_bytes"] < small["peak_bytes"]


def test_accumulation_takes_the_micro_batch_and_a_buffer_of_gradients(estimate, small):
    found = estimate(SMALL, "--batch-size", "64", "--accumulate", "4")
    weights = 4 * (3 * 3 * 3 * 16 + 16 + 3 * 3 * 16 * 32 + 32 + 32 * 10 + 10)
    assert found["batch_size"] == 64
    assert found["by_kind"]["input"] == small["by_kind"]["input"]
    assert found["by_kind"]["optimizer"] >= small["by_kind"]["optimizer"] + weights


def test_a_limit_decides_whether_it_fits_and_with_check_the_exit_code(run_on_jax, estimate, small):
    found = estimate(SMALL, "--batch-size", "16", "--limit", "1MiB")
    assert found["limit_bytes"] == 1024**2
    assert found["fits"] is False
    assert found["gpu"] == "T4"
    checked = run_on_jax(SMALL, "--batch-size", "16", "--gpu", "T4", "--limit", "1MiB", "--check", "--json")
    assert (checked.returncode, json.loads(checked.stdout)["fits"]) == (1, False)
    assert run_on_jax(SMALL, "--batch-size", "16", "--gpu", "T4", "--check").returncode == 0


def test_bytes_as_input_take_a_quarter_of_floats(estimate, small):
    found = estimate(SMALL, "--batch-size", "16", "--input-dtype", "uint8")
    pictures = 16 * 32 * 32 * 3
    assert small["by_kind"]["input"] - found["by_kind"]["input"] == 3 * pictures
    assert found["recipe"] == {"input_dtype": "uint8"}


def test_an_open_size_is_filled_in_by_the_image_size(run_on_jax, estimate, small):
    refuses(run_on_jax("models.py:open_size"), "leaves dimensions open", "--image-size")
    found = estimate("models.py:open_size", "--batch-size", "16", "--image-size", "32")
    assert found["peak_bytes"] == small["peak_bytes"]


def test_all_backends_side_by_side(run, small):
    done = run(SMALL, "--batch-size", "16", "--backend", "all", "--gpu", "T4", "--json", KERAS_BACKEND="torch")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert set(answer) == {"estimates", "refusals"}
    by_backend = {cell["backend"]: cell for cell in [*answer["estimates"], *answer["refusals"]]}
    assert set(by_backend) == {"jax", "tensorflow", "torch"}
    assert by_backend["jax"]["peak_bytes"] == small["peak_bytes"]
    for refusal in answer["refusals"]:
        assert refusal["batch_size"] == 16
        assert refusal["reason"]
        assert "Traceback" not in refusal["reason"]


# What is kept.


def broken_compiler(folder: Path) -> dict[str, str]:
    """An environment in which the compiler's process dies as soon as it starts."""
    (folder / "broken").mkdir(exist_ok=True)
    (folder / "broken" / "sitecustomize.py").write_text(
        "import os, sys\nif any('backends.xla.child' in word for word in sys.orig_argv): os._exit(7)\n"
    )
    return {"PYTHONPATH": os.pathsep.join([str(folder / "broken"), os.environ.get("PYTHONPATH", "")])}


def test_a_result_is_kept_and_served_without_the_compiler(run_on_jax, folder, small):
    arguments = (SMALL, "--gpu", "T4", "--json")
    broken = {"own_compiler": True, **broken_compiler(folder)}
    again = run_on_jax(*arguments, "--batch-size", "16", **broken)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["by_kind"] == small["by_kind"]
    refuses(
        run_on_jax(*arguments, "--batch-size", "16", FITROOM_NO_CACHE="1", **broken), "could not compile", "version"
    )
    half = run_on_jax(*arguments, "--batch-size", "16,17", **broken)
    assert half.returncode == 0
    assert [each["batch_size"] for each in json.loads(half.stdout)["estimates"]] == [16]
    assert [each["batch_size"] for each in json.loads(half.stdout)["refusals"]] == [17]


def test_a_kept_result_that_is_damaged_is_not_trusted(run_on_jax, tmp_path):
    needs_the_compiler()
    own = {"FITROOM_CACHE_DIR": str(tmp_path / "cache")}
    arguments = (SMALL, "--batch-size", "2", "--json")
    first = run_on_jax(*arguments, **own)
    (entry,) = (tmp_path / "cache").iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(whole[: len(whole) // 2])
    second = run_on_jax(*arguments, **own)
    assert json.loads(second.stdout)["by_kind"] == json.loads(first.stdout)["by_kind"]
    assert gzip.decompress(entry.read_bytes()) == gzip.decompress(whole)


def test_a_kept_result_with_flipped_bytes_is_as_if_it_were_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("FITROOM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("FITROOM_NO_CACHE", raising=False)
    kept.store("key", {"numbers": list(range(1000))})
    assert kept.load("key") == {"numbers": list(range(1000))}
    (entry,) = tmp_path.iterdir()
    data = entry.read_bytes()
    entry.write_bytes(data[:20] + bytes(byte ^ 0xFF for byte in data[20:60]) + data[60:])
    assert kept.load("key") is None


# What cannot work.


def refuses(done: subprocess.CompletedProcess[str], *words: str, status: int = 1) -> None:
    """One message with a next step on stderr, nothing on stdout, no traceback."""
    assert done.returncode == status, (done.returncode, done.stdout[-500:], done.stderr[-2000:])
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "this is unexpected" not in done.stderr
    assert len(re.findall(r"^[eE]rror: ", done.stderr, re.MULTILINE)) == 1
    assert ("hint: " if status == 1 else "Try 'fitroom estimate --help'") in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize("text", ["0", "abc", "-1", "8,,16", "8,", "", "1.5", "9" * 5000])
def test_a_batch_size_that_is_none_is_wrong_usage(refused, text):
    refuses(refused("xception", f"--batch-size={text}"), "--batch-size", "16,32,64", status=2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--plot", "step.pdf"], [".svg, .png or .html"]),
        (["--plot", "nowhere/step.svg"], ["no folder 'nowhere'"]),
        (["--plot", "step.svg", "--batch-size", "4,8"], ["one --batch-size"]),
        (["--image-size", "0"], ["--image-size"]),
        (["--accumulate", "0"], ["--accumulate"]),
        (["--no-such-option"], ["--no-such-option"]),
        (["another_model"], ["another_model"]),
    ],
)
def test_wrong_usage_is_told_before_any_work(refused, arguments, words):
    refuses(refused("xception", *arguments), *words, status=2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gpu", "RTX 3600"], ["Unknown GPU", "'RTX 3600'", "RTX 3060"]),
        (["--precision", "mixed_float61"], ["Unknown precision", "mixed_float16"]),
        (["--backend", "tensorfow"], ["Unknown backend", "tensorflow"]),
        (["--backend", "numpy"], ["cannot train"]),
        (["--input-dtype", "unit8"], ["Unknown dtype", "'uint8'"]),
        (["--input-dtype", "string"], ["Unknown dtype", "float32"]),
        (["--limit", "12 bananas"], ["12 bananas", "12GiB"]),
        (["--limit", "0"], ["positive"]),
    ],
)
def test_a_name_or_size_that_is_not_known_is_told_before_any_work(refused, arguments, words):
    done = refused("xception", *arguments)
    refuses(done, *words)
    assert "building" not in done.stderr


def test_the_first_line_says_which_backend_and_why_and_the_flag_wins(run_on_jax):
    needs("jax")
    done = run_on_jax("models.py:raises", "--json", KERAS_BACKEND="torch")
    refuses(done, "the data is not there")
    assert done.stderr.splitlines()[0] == "backend: JAX (--backend, which overrides KERAS_BACKEND=torch)"
    assert done.stderr.count("backend: ") == 1


def test_without_any_backend_the_install_line_is_given(run, folder):
    (folder / "bare").mkdir()
    hidden = "import sys\nfor name in ('jax', 'tensorflow', 'torch'): sys.modules[name] = None\n"
    (folder / "bare" / "sitecustomize.py").write_text(hidden)
    path = os.pathsep.join(filter(None, (str(folder / "bare"), os.environ.get("PYTHONPATH"))))
    done = run("xception", PYTHONPATH=path)
    refuses(done, "No backend is installed", "pip install 'fitroom[jax]'")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("xcpetion", ["Unknown model", "'Xception'"]),
        ("models.py:raises", ["RuntimeError", "the data is not there", "--debug"]),
        ("models.py:mak_model", ["Unknown function", "'make_model'"]),
        ("missing.keras", ["no file", "'missing.keras'"]),
        *(
            pytest.param(model, words, marks=pytest.mark.slow)
            for model, words in (
                ("", ["empty"]),
                ("models.py:not_built", ["not built", "keras.Input"]),
                ("models.py:leaves", ["SystemExit", "__main__"]),
                ("models.py:returns_a_layer", ["Dense", "keras.Model"]),
                ("models.py:needs_arguments", ["TypeError", "width"]),
                ("models.py", ["no function", "models.py:make_model"]),
                ("nowhere.py:make_model", ["no file", "'nowhere.py'"]),
            )
        ),
    ],
)
def test_a_model_that_cannot_be_had_is_told_with_the_reason(run_on_jax, model, words):
    refuses(run_on_jax(model), *words)


def test_a_picture_too_small_for_the_model_is_told(run_on_jax):
    refuses(run_on_jax("xception", "--image-size", "32"), "at 32 x 32", "71x71", "--image-size")


def test_an_optimizer_that_keras_does_not_know_is_told(run_on_jax):
    refuses(run_on_jax(SMALL, "--optimizer", "adm"), "Unknown optimizer", "'adam'")


def test_a_function_that_asks_for_more_is_told_what_it_may_ask_for(run_on_jax, folder):
    (folder / "asking.py").write_text("def make_model(depth):\n    return None\n")
    refuses(run_on_jax("asking.py:make_model"), "asks for 'depth'", "or a default: `def make_model(depth=...):`")


def test_classes_are_for_ready_made_models(run_on_jax):
    refuses(run_on_jax(SMALL, "--classes", "7"), "--classes 7", "last layer")


# Files.


@pytest.fixture(scope="module")
def saved(folder) -> Path:
    """Files that `model.save` wrote, whole and damaged."""
    needs("jax")
    program = """
import keras
from keras import layers

class Mine(layers.Dense):
    pass

def save(name, *stack):
    model = keras.Sequential([keras.Input((8,)), *stack], name=name)
    model.compile("adam", "mse", metrics=["mae"])
    model.save(name + ".keras")

save("plain", layers.Dense(2))
save("lambda", layers.Lambda(lambda x: 2 * x, output_shape=(8,)), layers.Dense(2))
save("custom", Mine(2))
"""
    env = os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    run_forked("-c", program, backend="jax", cwd=folder, env=env).check_returncode()
    whole = (folder / "plain.keras").read_bytes()
    (folder / "cut.keras").write_bytes(whole[: len(whole) // 2])
    (folder / "text.keras").write_text("not a zip")
    (folder / "a_folder.keras").mkdir()
    with zipfile.ZipFile(folder / "empty.keras", "w"):
        pass
    with zipfile.ZipFile(folder / "list.keras", "w") as archive:
        archive.writestr("config.json", "[1, 2]")
    return folder


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cut", ["not a whole .keras file", "model.save"]),
        ("text", ["not a whole .keras file", "zip"]),
        ("empty", ["not a whole .keras file", "config.json"]),
        ("list", ["not a whole .keras file", "no model"]),
        ("a_folder", ["is a folder"]),
        ("custom", ["the class 'Mine'", "file.py:function"]),
    ],
)
@pytest.mark.usefixtures("saved")
def test_a_file_that_cannot_be_read_is_told_with_the_reason(run_on_jax, name, words):
    refuses(run_on_jax(f"{name}.keras"), f"{name}.keras", *words)


@pytest.mark.usefixtures("saved")
def test_a_saved_model_is_estimated_as_it_was_compiled(estimate):
    found = estimate("plain.keras")
    assert found["model"] == "plain"
    assert not any("Not compiled" in note for note in found["notes"])


@pytest.mark.usefixtures("saved")
def test_code_in_a_file_runs_only_where_it_is_trusted(run_on_jax, estimate):
    refuses(run_on_jax("lambda.keras"), "lambda.keras", "--unsafe")
    assert estimate("lambda.keras", "--unsafe")["peak_bytes"] > 0


# Errors for those who want to see all.


@pytest.mark.parametrize("place", ["before", pytest.param("after", marks=pytest.mark.slow)])
def test_debug_shows_the_traceback_wherever_it_stands(run, place):
    needs("jax")
    arguments = ("models.py:raises", "--backend", "jax")
    done = run(*arguments, before=("--debug",)) if place == "before" else run(*arguments, "--debug")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" in done.stderr
    assert "the data is not there" in done.stderr
    assert 'raise RuntimeError("the data is not there")' in done.stderr
