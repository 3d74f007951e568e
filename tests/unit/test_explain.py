"""`fitroom explain` on messages as frameworks print them, and on input that is none."""

import json
import sys
import tracemalloc
from pathlib import Path

import pytest
from click.testing import CliRunner

import fitroom
from fitroom.cli.explain import command
from fitroom.explaining.explain import explain_file, explain_lines

LOGS = Path(__file__).parent.parent / "fixtures" / "crash_logs"
INDEX = {entry["file"]: entry for entry in json.loads((LOGS / "index.json").read_text())}
ABOUT_MEMORY = [name for name, entry in INDEX.items() if entry["expected"]["kind"] != "none"]
NOT_RECOGNISED = {  # their texts do not speak of memory
    "torch-cudnn-not-supported.log",
    "cpu-jax-keras-predict.log",
    "cpu-torch-worker-sigkill.log",
    "cpu-multiprocessing-pipe-killed.log",
}
TORCH = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"


def accepted(entry, name):
    expected = entry["expected"]
    return [expected.get(name), *expected.get("also_accept", {}).get(name, [])]


def is_near(found, values, share):
    return any(value is not None and abs(value - found) <= max(2, share * value) for value in values)


def list_wrong(entry, explanation):
    """What an explanation states that is not so. What it leaves open is not wrong."""
    failure, wrong = explanation.failure, []
    if failure is None:
        return []
    if failure.kind not in accepted(entry, "kind"):
        return [("kind", failure.kind)]
    if explanation.cause.name not in ("unknown", *entry["expected"]["causes"]):
        wrong.append(("cause", explanation.cause.name))
    for name in ("device", "device_index", "phase"):
        if getattr(failure, name) not in (None, *accepted(entry, name)):
            wrong.append((name, getattr(failure, name)))
    if failure.shape is not None and list(failure.shape) not in accepted(entry, "shape"):
        wrong.append(("shape", failure.shape))
    for name in ("requested_bytes", "total_bytes", "in_use_bytes", "free_bytes", "limit_bytes"):
        share = 0.0 if name == "requested_bytes" and not entry["expected"].get("requested_is_rounded") else 0.006
        if (found := getattr(failure, name)) is not None and not is_near(found, accepted(entry, name), share):
            wrong.append((name, found))
    layers = [f"/{layer}/" for layer in accepted(entry, "layer") if layer]
    if failure.layer is not None and not any(f"/{failure.layer}/" in layer for layer in layers):
        wrong.append(("layer", failure.layer))
    named = entry["framework"] in ("tensorflow", "jax", "torch", "numpy")
    if named and failure.framework not in (None, "system", entry["framework"]):
        wrong.append(("framework", failure.framework))
    return wrong


@pytest.mark.parametrize("name", INDEX)
def test_nothing_that_is_said_of_a_log_is_wrong(name):
    explanation = explain_file(LOGS / name)
    assert list_wrong(INDEX[name], explanation) == []
    is_about_memory = INDEX[name]["expected"]["kind"] != "none"
    assert explanation.recognised == (is_about_memory and name not in NOT_RECOGNISED)


def test_most_causes_that_a_log_decides_are_named():
    decided = [name for name in ABOUT_MEMORY if "unknown" not in INDEX[name]["expected"]["causes"]]
    named = [name for name in decided if explain_file(LOGS / name).cause.name != "unknown"]
    assert len(decided) > 25
    assert len(named) >= 0.9 * len(decided)


def test_sizes_layers_and_phases_are_found_where_they_are_printed():
    def share(field):
        shown = [name for name in ABOUT_MEMORY if None not in accepted(INDEX[name], field)]
        found = [
            name for name in shown if (e := explain_file(LOGS / name)).failure and getattr(e.failure, field) is not None
        ]
        return len(found) / len(shown)

    assert share("requested_bytes") >= 0.95
    assert share("layer") >= 0.95
    assert share("phase") >= 0.8


def test_every_explanation_shows_itself_in_80_columns():
    from rich.console import Console

    for name in INDEX:
        console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
        console.print(explain_file(LOGS / name))
        shown = console.export_text()
        assert all(len(line) <= 80 for line in shown.splitlines())
        assert "Not recognised" in shown or "What to try" in shown


def test_settings_come_in_the_order_of_what_they_change():
    order = ["nothing", "rounding", "batch statistics", "the task itself"]
    for name in ABOUT_MEMORY:
        changes = [order.index(setting.changes) for setting in explain_file(LOGS / name).settings]
        assert changes == sorted(changes)


def test_the_last_failure_of_several_processes_is_explained_and_the_others_are_counted():
    log = [
        f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU {rank} has a total "
        f"capacity of 15.00 GiB of which 10.00 MiB is free."
        for rank in (0, 3)
    ]
    explanation = explain_lines([log[0], "[rank1]: Epoch 1/5", log[1], "exitcode  : -9 (pid: 4711)"])
    assert explanation.failure.device_index == 3
    assert explanation.failure.count == 2


def test_an_error_without_a_traceback_in_a_progress_bar_is_found():
    assert explain_lines([f"12/100 [>...] - ETA: 1:40\r13/100 [>...] - ETA: 1:39{TORCH}"]).recognised


@pytest.mark.parametrize(
    "line",
    [
        "\x1b[31mMemoryError\x1b[0m",
        "2024-05-04T12:00:00.123456789Z MemoryError",
        "3: MemoryError",
        "[pod/train-abc/main] MemoryError: ",
        "Nov 19 12:00:00 node7 train.sh[4711]: MemoryError",
        '{"log":"MemoryError\\n","stream":"stderr","time":"2024-05-04T12:00:00.1Z"}',
        "train-1  | MemoryError",
    ],
)
def test_what_others_print_around_a_line_is_no_part_of_it(line):
    assert explain_lines(["step 1", line]).failure.kind == "host_out_of_memory"


def test_colours_within_a_message_are_no_part_of_it():
    coloured = "\x1b[0;31mResourceExhaustedError\x1b[0m: \x1b[1mfailed to allocate memory\x1b[0m [Op:Mul]"
    assert explain_lines([coloured]).failure.framework == "tensorflow"


NO_CUBLAS = "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"


def test_a_library_that_fails_after_an_assertion_on_the_card_fails_for_that():
    assertion = "Loss.cu:257: nll_loss: block: [0,0,0], thread: [4,0,0] Assertion `t >= 0 && t < n_classes` failed."
    explanation = explain_lines([assertion, NO_CUBLAS])
    assert not explanation.recognised
    assert "Assertion `t >= 0" in explanation.notes[0]
    assert explain_lines([assertion, TORCH]).failure.kind == "device_out_of_memory"


def test_a_missing_library_that_is_not_needed_is_no_reason():
    warning = "dlerror: libnvinfer.so.7: cannot open shared object file: No such file or directory"
    assert explain_lines([warning, NO_CUBLAS]).recognised


def test_keras_3_is_known_by_how_its_tensorflow_logs_and_keras_2_by_its_name():
    said = "OOM when allocating tensor with shape[8,8] [[{{node m/dense_1/Relu}}]]"
    node = f"W0000 00:00:1795128409.430706 23960 op_kernel.cc:1858] {said}"
    assert explain_lines([node]).failure.layer == "m/dense"
    assert explain_lines(['File "site-packages/tf_keras/src/engine.py"', node]).failure.layer == "m/dense_1"


def test_one_request_that_is_said_twice_is_of_the_device_that_is_said_once():
    lines = [
        "Allocator (bfc_cpu_allocator_for_gpu) ran out of memory trying to allocate 1.26GiB (rounded to 1354979840)",
        "ResourceExhaustedError: Out of memory while trying to allocate 1.26GiB.",
    ]
    assert explain_lines(lines).failure.kind == "host_out_of_memory"


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "gbk"])
def test_a_log_in_another_encoding_is_read(tmp_path, encoding):
    path = tmp_path / "crash.log"
    path.write_bytes(f"训练\n{TORCH}\n".encode(encoding, errors="replace"))
    assert fitroom.explain(path).failure.requested_bytes == 2**31


def test_a_failure_after_which_training_went_on_says_so():
    bars = [f"{n}/100 [==>...] - ETA: 1:40 - loss: 0.5" for n in range(3)]
    assert "it did not end all of the training" in explain_lines([TORCH, *bars]).notes[0]
    source = ["    model.fit(x, y, epochs=10, steps_per_epoch=20)", "CalledProcessError: 'train.py', '--steps=5'"]
    assert not any("did not end" in note for note in explain_lines([TORCH, *source, *source]).notes)
    assert not any("did not end" in note for note in explain_lines([*bars, TORCH]).notes)


def test_being_killed_in_a_cancelled_job_says_nothing_about_memory():
    cancelled = [
        "slurmstepd: error: *** JOB 41 ON gpu07 CANCELLED AT 2024-03-05T10:14:43 DUE TO TIME LIMIT ***",
        "Killed",
    ]
    explanation = explain_lines(cancelled)
    assert not explanation.recognised
    assert "cancelled" in explanation.notes[0]
    assert explain_lines([TORCH, *cancelled]).failure.kind == "device_out_of_memory"


def test_the_numbers_that_keras_3_has_in_names_of_nodes_are_no_part_of_a_layer():
    node = "{{node gradient_tape/functional_1_1/dense_1_2/MatMul}}"
    oom = f"OOM when allocating tensor with shape[8,8] and type float on GPU:0 by allocator GPU_0_bfc\n\t [[{node}]]"
    keras_2 = explain_lines([*oom.splitlines(), " [Op:__inference_train_function_11]"])
    assert keras_2.failure.layer == "dense_1_2"
    keras_3 = explain_lines([*oom.splitlines(), " [Op:__inference_one_step_on_iterator_11]"])
    assert keras_3.failure.layer == "dense_1"


def test_a_warning_after_which_training_went_on_is_no_failure():
    warning = "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.16GiB"
    went_on = explain_lines([warning, "500/500 [====] - 96s 183ms/step - loss: 0.4"])
    assert not went_on.recognised
    assert explain_lines([warning]).recognised


def test_a_long_log_is_read_in_bounded_memory(tmp_path):
    log = tmp_path / "long.log"
    with log.open("w") as file:
        for number in range(60_000):
            file.write(f"{number}/60000 [====>....] - ETA: 1:40 - loss: 0.{number}\r")  # one line without end
        file.write("\n" + "InUse at 904000000 of size 1280 next 1\n" * 30_000 + f"{TORCH}\n" * 300)
    tracemalloc.start()
    explanation = explain_file(log)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert explanation.failure.requested_bytes == 2**31
    assert log.stat().st_size > 4 * 2**20 > peak_bytes / 2


def fail_in_training():
    try:
        raise RuntimeError("CUDA error: out of memory")
    except RuntimeError as error:
        raise ValueError("training failed") from error


def test_an_exception_is_explained_with_its_causes():
    with pytest.raises(ValueError, match="training failed") as raised:
        fail_in_training()
    assert fitroom.explain(raised.value).failure.kind == "device_out_of_memory"


def test_within_an_except_block_the_error_at_hand_is_taken():
    explanation = None
    try:
        fail_in_training()
    except ValueError:
        explanation = fitroom.explain()
    assert explanation is not None
    assert explanation.failure.kind == "device_out_of_memory"


def test_the_last_error_of_an_interpreter_is_taken(monkeypatch):
    monkeypatch.setattr(sys, "last_exc", None, raising=False)
    monkeypatch.setattr(sys, "last_value", MemoryError(), raising=False)
    assert fitroom.explain().failure.kind == "host_out_of_memory"
    monkeypatch.setattr(sys, "last_value", None)
    with pytest.raises(fitroom.InputError, match="no last error"):
        fitroom.explain()


def test_a_model_needs_its_batch_size():
    with pytest.raises(fitroom.InputError, match="belong together"):
        fitroom.explain(TORCH, batch_size=4)


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is empty"), (b"\n  \n", "is empty"), (b"PK\x03\x04\0\0", "no text"), (b"\xff\xfe", "is empty")],
)
def test_a_file_that_is_no_log_is_refused(tmp_path, content, said):
    path = tmp_path / "crash.log"
    path.write_bytes(content)
    with pytest.raises(fitroom.InputError, match=said):
        fitroom.explain(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none.log", tmp_path, "no_such_crash.log"):
        with pytest.raises(fitroom.InputError, match="cannot be read"):
            fitroom.explain(path)


def test_what_is_no_error_is_refused():
    with pytest.raises(fitroom.InputError, match="`error` must be an exception"):
        fitroom.explain(3)


def test_the_command_explains_a_file(tmp_path):
    path = tmp_path / "crash.log"
    path.write_text(TORCH)
    shown = CliRunner().invoke(command, [str(path)])
    assert shown.exit_code == 0
    assert "Out of memory on the GPU" in shown.stdout
    found = json.loads(CliRunner().invoke(command, [str(path), "--json"]).stdout)
    assert found["recognised"]
    assert found["failure"]["requested_bytes"] == 2**31
    assert next(setting["changes"] for setting in found["settings"]) == "nothing"


def test_a_piped_log_is_passed_on_to_stderr():
    shown = CliRunner().invoke(command, [], input=f"Epoch 1/5\n{TORCH}\n")
    assert shown.exit_code == 0
    assert shown.stderr == f"Epoch 1/5\n{TORCH}\n"
    assert "Out of memory" in shown.stdout
    assert CliRunner().invoke(command, ["--quiet"], input=TORCH).stderr == ""


def test_a_text_that_is_not_known_ends_with_1():
    shown = CliRunner().invoke(command, ["--quiet"], input="ValueError: shapes differ\n")
    assert shown.exit_code == 1
    assert "Not recognised" in shown.stdout


@pytest.mark.parametrize("arguments", [["--model", "xception"], ["--batch-size", "4"], ["--gpu", "T4"]])
def test_options_about_the_model_belong_together(arguments):
    shown = CliRunner().invoke(command, arguments, input=TORCH)
    assert shown.exit_code == 2
    assert "--model" in shown.stderr
