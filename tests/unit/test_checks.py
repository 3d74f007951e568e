"""The checks of `fitroom doctor` that need no framework.

There is no card in most machines that run this: the driver's answer is made up, what is made of it is not.
"""

import os
import sys
from pathlib import Path

import pytest

from fake_packages import install, own, require
from fitroom.backends.contract import Device
from fitroom.cards.nvml import Driver, GpuProcess, GpuUsage, LiveGpu, read_usage
from fitroom.checks import device_note as module
from fitroom.checks.card_memory import check_allocator, check_precision, check_usage
from fitroom.checks.causes import find_causes
from fitroom.checks.device import check_card, check_device, check_probe
from fitroom.checks.device_note import device_note, device_note_once
from fitroom.checks.diagnose import diagnose
from fitroom.checks.finding import Diagnosis, Finding
from fitroom.checks.host import check_disk, check_memory, check_shared_memory, read_cgroup
from fitroom.checks.input_advice import advise_input
from fitroom.checks.input_source import InputSource
from fitroom.checks.machine import Machine, read_machine
from fitroom.checks.packages import Packages
from fitroom.checks.probe import Probe, Work, read_log
from fitroom.checks.versions import check_versions

GIB = 2**30
CARD = LiveGpu(index=0, name="Tesla T4", memory_bytes=16 * GIB, used_bytes=0, compute_capability=(7, 5))
OLD_CARD = LiveGpu(index=0, name="GTX 1080", memory_bytes=8 * GIB, used_bytes=0, compute_capability=(6, 1))
DRIVER = Driver(version="580.95.05", cuda_version=(13, 0), error=None)
NO_DRIVER = Driver(version=None, cuda_version=None, error="NVML Shared Library Not Found")
FRACTIONS = {"XLA_CLIENT_MEM_FRACTION": "0.5", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5"}
ON_CPU = Probe(devices=({"name": "cpu:0", "kind": "cpu", "description": None},))


def a_machine(backend="jax", *, gpus=(CARD,), visible=None, driver=DRIVER, installed=None, environment=None, **others):
    return Machine(
        backend=backend,
        environment=environment or {},
        packages=Packages.read([str(installed)] if installed else []),
        driver=driver,
        gpus=gpus,
        visible=gpus if visible is None else visible,
        **{"system": "Linux"} | others,
    )


class Sees:
    """A backend that sees one device."""

    name = "jax"

    def __init__(self, kind):
        self.kind = kind

    def devices(self):
        return (Device(name=f"{self.kind}:0", kind=self.kind, description=None),)


@pytest.mark.parametrize(("kind", "cards"), [("gpu", (CARD,)), ("cpu", ()), ("other", (CARD,))])
def test_no_note_where_the_card_is_used_or_there_is_none(monkeypatch, kind, cards):
    monkeypatch.setattr(module, "all_gpus", lambda: cards)
    assert device_note(Sees(kind)) is None


def test_a_card_that_stands_idle_is_named_once_with_the_reason_and_the_fix(monkeypatch):
    monkeypatch.setattr(module, "all_gpus", lambda: (CARD,))
    monkeypatch.setattr(module, "read_machine", lambda backend: a_machine(backend, environment=FRACTIONS))
    monkeypatch.setattr(module, "_has_looked", False)
    note = device_note_once(Sees("cpu"))
    assert note.startswith("training runs on the CPU, although this machine has a card (Tesla T4): XLA_CLIENT_MEM")
    assert "unset XLA_PYTHON_CLIENT_MEM_FRACTION" in note
    assert "`fitroom doctor`" in note
    assert "\n" not in note
    assert device_note_once(Sees("cpu")) is None


@pytest.mark.parametrize(
    ("backend", "environment", "installed", "name", "words"),
    [
        ("jax", FRACTIONS, {"jax_cuda13_plugin": "0.10"}, "two memory fractions", "both set"),
        ("jax", {"JAX_PLATFORMS": "cpu"}, {"jax_cuda12_plugin": "0.10"}, "JAX_PLATFORMS", "'cpu' leaves the GPU out"),
        ("jax", {}, {"jax": "0.10"}, "CPU-only build", "without CUDA"),
        ("jax", {}, {"jax_cuda13_pjrt": "0.10"}, "CPU-only build", "alone is the compiler"),
        ("jax", {}, {"jax_cuda13_plugin": "0.9", "jaxlib": "0.10"}, "plugin version", "of its own version alone"),
        ("tensorflow", {}, {"tensorflow_cpu": "2.21"}, "CPU-only build", "tensorflow-cpu is installed: it has no CUDA"),
        ("tensorflow", {}, {"tensorflow_cpu": "2.21", "tensorflow": "2.21"}, "CPU-only build", "beside tensorflow"),
        ("tensorflow", {}, {"tensorflow": "2.21"}, "tensorflow without CUDA libraries", "without [and-cuda]"),
        ("torch", {"KERAS_TORCH_DEVICE": "cpu"}, {"torch": "2.13"}, "KERAS_TORCH_DEVICE", "train on the CPU"),
        ("torch", {}, {"torch": "2.13.0+cpu"}, "CPU-only build", "PyTorch 2.13.0+cpu is built without CUDA"),
    ],
)
def test_the_cause_is_looked_for_in_settings_and_packages(tmp_path, backend, environment, installed, name, words):
    machine = a_machine(backend, environment=environment, installed=install(tmp_path, **installed))
    (cause,) = find_causes(machine)
    assert cause.name == name
    assert words in cause.found
    assert cause.fix


def test_a_variable_that_hides_every_card_is_a_cause_and_one_that_leaves_a_card_is_none(tmp_path):
    packages = install(tmp_path, jax_cuda13_plugin="0.10", jaxlib="0.10")
    hidden = a_machine(environment={"CUDA_VISIBLE_DEVICES": "-1"}, visible=(), installed=packages)
    assert [cause.name for cause in find_causes(hidden)] == ["CUDA_VISIBLE_DEVICES"]
    assert find_causes(a_machine(environment={"CUDA_VISIBLE_DEVICES": "0"}, installed=packages)) == []


def test_a_driver_or_a_card_too_old_for_the_wheel_is_named_with_what_would_do(tmp_path):
    packages = install(tmp_path, jax_cuda13_plugin="0.10.2", jax="0.10.2", jaxlib="0.10.2")
    old_driver = Driver(version="550.54.15", cuda_version=(12, 4), error=None)
    (cause,) = find_causes(a_machine(driver=old_driver, installed=packages))
    assert (cause.name, "needs driver 580.65 or later" in cause.found) == ("driver too old", True)
    assert "pip uninstall -y jax-cuda13-plugin && pip install 'jax[cuda12]==0.10.2'" in cause.fix
    (cause,) = find_causes(a_machine(gpus=(OLD_CARD,), installed=packages))
    assert cause.name == "card too old"
    assert "6.1; CUDA 13" in cause.found


def test_the_cuda_of_a_wheel_is_read_from_its_files(tmp_path):
    install(tmp_path, torch="2.13.0", tensorflow="2.21.0")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/version.py").write_text("cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n")
    place = tmp_path / "tensorflow/python/platform"
    place.mkdir(parents=True)
    (place / "build_info.py").write_text("build_info = collections.OrderedDict([('cuda_version', '12.5.1')])\n")
    packages = Packages.read([str(tmp_path)])
    assert packages.cuda_of("torch") == (12, 8)
    assert packages.cuda_of("tensorflow") == (12, 5)
    assert packages.cuda_of("jax") is None


@pytest.mark.parametrize(
    ("facts", "name", "fix"),
    [
        ({"place": "Docker", "on_bus": ("NVIDIA",)}, "container runtime", "docker run --gpus all"),
        ({"place": "Apptainer", "on_bus": ("NVIDIA",)}, "container runtime", "apptainer exec --nv"),
        ({"place": "WSL2", "has_wsl_device": True}, "WSL2", "/usr/lib/wsl/lib"),
        ({"on_bus": ("NVIDIA",)}, "driver", "ubuntu-drivers"),
        ({"on_bus": ("NVIDIA",), "has_kernel_driver": True}, "driver", "libnvidia-ml"),
        (
            {"on_bus": ("NVIDIA",), "driver": Driver(version=None, cuda_version=None, error="Driver/library mismatch")},
            "driver",
            "sudo reboot",
        ),
    ],
)
def test_a_driver_that_does_not_answer_is_explained_by_where_the_process_runs(facts, name, fix):
    machine = a_machine("tensorflow", **{"gpus": (), "driver": NO_DRIVER} | facts)
    cause = find_causes(machine)[0]
    assert cause.name == name
    assert fix in cause.fix
    assert [finding.status for finding in check_card(machine, ON_CPU)] == ["failure"]


def test_on_windows_tensorflow_after_2_10_and_jax_have_no_gpu_build(tmp_path):
    new = a_machine("tensorflow", system="Windows", installed=install(tmp_path / "new", tensorflow="2.21.0"))
    old = a_machine("tensorflow", system="Windows", installed=install(tmp_path / "old", tensorflow="2.10.1"))
    assert [cause.name for cause in find_causes(new)] == ["native Windows"]
    assert "native Windows" not in [cause.name for cause in find_causes(old)]
    assert find_causes(a_machine("jax", system="Windows"))[0].name == "native Windows"


def test_the_machine_is_read_from_the_files_of_the_system(tmp_path):
    device = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/version").write_text("Linux version 6.6.87.2-microsoft-standard-WSL2")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/dxg").touch()
    machine = read_machine("jax", environment={}, root=tmp_path)
    assert (machine.on_bus, machine.place, machine.has_wsl_device) == (("NVIDIA",), "WSL2", True)
    (tmp_path / ".dockerenv").touch()
    assert read_machine("jax", environment={}, root=tmp_path).place == "Docker"
    assert read_machine("jax", environment={"COLAB_RELEASE_TAG": "1"}, root=tmp_path).place == "Colab"
    assert read_machine("jax", environment={"KAGGLE_KERNEL_RUN_TYPE": "Batch"}, root=tmp_path).place == "Kaggle"


@pytest.mark.parametrize(
    ("facts", "status", "words"),
    [
        ({}, "pass", "no GPU in this machine: training runs on the CPU"),
        ({"place": "Colab"}, "warning", "this Colab notebook has no accelerator"),
        ({"place": "Kaggle"}, "warning", "this Kaggle notebook has no accelerator"),
        ({"system": "Darwin", "processor": "arm64"}, "warning", "PyTorch (MPS) alone"),
        ({"on_bus": ("AMD",)}, "warning", "ROCm builds"),
    ],
)
def test_a_machine_without_an_nvidia_card_is_not_broken(facts, status, words):
    machine = a_machine(gpus=(), driver=NO_DRIVER, **facts)
    (finding,) = check_card(machine, ON_CPU)
    assert finding.status == status
    assert words in finding.found
    assert [each.status for each in check_device(machine, ON_CPU)] == ["pass"]


def test_a_card_that_the_backend_sees_and_the_driver_does_not_show_is_in_use():
    machine = a_machine(gpus=(), driver=NO_DRIVER)
    sees = Probe(devices=({"name": "gpu:0", "kind": "gpu", "description": "Tesla T4"},))
    (card,), (device,) = check_card(machine, sees), check_device(machine, sees)
    assert (card.status, device.status) == ("warning", "pass")
    assert "NVML Shared Library Not Found" in card.found


def test_a_fall_back_is_a_failure_with_its_causes_and_the_libraries_that_are_missing(tmp_path):
    packages = install(tmp_path, tensorflow="2.21.0", nvidia_cudnn_cu12="9.3")
    missing = Probe(devices=ON_CPU.devices, missing_libraries=("libcufft.so.11",))
    found = list(check_device(a_machine("tensorflow", installed=packages), missing))
    assert [(each.status, each.name) for each in found] == [("failure", "device"), ("failure", "missing libraries")]
    assert "libcufft.so.11" in found[1].found
    assert found[1].fix == "pip install 'tensorflow[and-cuda]==2.21.0'"
    silent = Probe(devices=ON_CPU.devices, log=("CUDA_ERROR_NO_DEVICE",))
    assert "CUDA_ERROR_NO_DEVICE" in list(check_device(a_machine("tensorflow", installed=packages), silent))[1].found


def test_the_probe_is_judged_as_running_suspiciously_slow_or_elsewhere():
    def judge(rate, on_device=True):
        work = Work(device="cuda:0" if on_device else "cpu", on_device=on_device, flops_per_second=rate)
        device = {"name": "gpu:0", "kind": "gpu", "description": "Tesla T4"}
        (finding,) = check_probe(a_machine(), Probe(devices=(device,), product=work, convolution=work))
        return finding

    assert judge(5e12).status == "pass"
    assert (judge(0.5e12).status, "suspiciously slow" in judge(0.5e12).found) == ("warning", True)
    assert (judge(5e12, on_device=False).status, "not on the card" in judge(5e12, False).found) == ("failure", True)


def test_memory_is_told_by_process_and_what_cannot_be_seen_by_its_bytes():
    train = GpuProcess(pid=77, name="python train.py", used_bytes=3 * GIB)
    own_process = GpuProcess(pid=5, name="python", used_bytes=GIB)
    usage = GpuUsage(gpu=CARD, used_bytes=6 * GIB, processes=(train, own_process))
    (finding,) = check_usage(a_machine(place="Docker"), (usage,), own_pid=5)
    assert finding.status == "warning"
    assert "3.00 GiB by python train.py (77); 1.00 GiB by this process (5)" in finding.found
    assert f"{2 * GIB:,} bytes by processes outside this container" in finding.found
    (idle,) = check_usage(a_machine(), (GpuUsage(gpu=CARD, used_bytes=0, processes=()),), own_pid=5)
    assert idle.status == "pass"


def test_processes_are_read_from_the_driver_and_named(monkeypatch):
    folder = str(Path(__file__).parents[1] / "helpers/fake_driver")
    gone = 2**22 + 1  # more than the system has
    answers = f'{{"gpus": [{{"name": "Tesla T4", "used": 3000, "processes": [[{os.getpid()}, 1000], [{gone}, 500]]}}]}}'
    monkeypatch.setenv("FAKE_DRIVER", answers)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    try:
        (usage,) = read_usage()
    finally:
        sys.modules.pop("pynvml", None)
    (process,) = usage.processes
    assert (process.pid, process.used_bytes, usage.hidden_bytes) == (os.getpid(), 1000, 2000)
    assert "py" in process.name


@pytest.mark.parametrize(
    ("backend", "environment", "status", "words"),
    [
        ("jax", {}, "pass", "JAX takes 75% of the card = 12.00 GiB"),
        ("jax", {"XLA_CLIENT_MEM_FRACTION": "0.9"}, "pass", "(XLA_CLIENT_MEM_FRACTION=0.9)"),
        ("jax", {"XLA_CLIENT_MEM_FRACTION": "half"}, "warning", "is no number"),
        ("jax", {"XLA_PYTHON_CLIENT_MEM_FRACTION": "90"}, "warning", "up to 1"),
        ("jax", {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, "warning", "by doubling"),
        ("jax", {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, "warning", "slow"),
        ("tensorflow", {}, "pass", "nearly all free memory"),
        ("tensorflow", {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}, "pass", "never shrinks"),
        ("torch", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, "pass", "segments that grow"),
    ],
)
def test_settings_of_the_allocator_are_told_with_what_they_mean(backend, environment, status, words):
    device = {"name": "gpu:0", "kind": "gpu", "description": "Tesla T4"}
    probe = Probe(devices=(device,), memory={"in_use_bytes": 64 * 2**20}, driver_bytes=GIB)
    (finding,) = check_allocator(a_machine(backend, environment=environment), probe)
    assert finding.status == status
    assert words in finding.found
    assert "64.0 MiB (the allocator's count)" in finding.found
    assert "1.00 GiB (NVML's)" in finding.found


@pytest.mark.parametrize(
    ("name", "capability", "words"),
    [
        ("Tesla T4", (7, 5), "mixed_float16 pays"),
        ("H200", (9, 0), "mixed_bfloat16 pays"),
        ("GTX 1080", (6, 1), "no time"),
    ],
)
def test_whether_mixed_precision_pays_depends_on_the_card(name, capability, words):
    gpu = LiveGpu(index=0, name=name, memory_bytes=16 * GIB, used_bytes=0, compute_capability=capability)
    (finding,) = check_precision(a_machine(gpus=(gpu,)))
    assert words in finding.found


@pytest.mark.parametrize(
    ("folder", "limit", "used"),
    [("", "memory.max", "memory.current"), ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes")],
)
def test_the_limit_of_a_container_counts_as_the_hosts_memory(tmp_path, folder, limit, used):
    place = tmp_path / "sys/fs/cgroup" / folder
    place.mkdir(parents=True)
    (place / limit).write_text(f"{GIB}\n")
    (place / used).write_text(f"{GIB // 4}\n")
    memory, _ = check_memory(tmp_path)
    assert memory.status == "warning"
    assert memory.facts["cgroup_limit_bytes"] == GIB
    assert memory.facts["free_bytes"] <= GIB * 3 // 4
    assert "that this container may use" in memory.found
    (place / limit).write_text("max" if not folder else str(2**63 - 4096))
    assert read_cgroup(tmp_path) is None


def test_little_shared_memory_and_disk_are_warned_of(tmp_path, monkeypatch):
    (enough,) = check_disk(tmp_path / "runs" / "not yet")
    assert enough.facts["folder"] == str(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda place: type("Usage", (), {"total": 2**26, "free": 2**25}))
    (shared,) = check_shared_memory(tmp_path)
    (disk,) = check_disk(tmp_path)
    assert (shared.status, disk.status) == ("warning", "warning")
    assert "--shm-size" in shared.fix


def test_packages_that_do_not_go_together_are_found_in_their_own_metadata(tmp_path):
    folder = install(tmp_path, tensorflow="2.17.0", tensorflow_cpu="2.17.0", keras="3.15.1", numpy="2.1.0")
    require(folder, "tensorflow", "numpy<2.0", "absl-py>=1", "tensorflow-io; extra == 'io'")
    machine = a_machine("tensorflow", installed=folder, environment={"TF_USE_LEGACY_KERAS": "1"})
    found = {finding.name: finding for finding in check_versions(machine)}
    assert found["versions"].facts["unmet"] == [["tensorflow", "numpy<2.0", "2.1.0 is installed"]]
    assert found["versions"].fix == "pip install 'numpy<2.0'"
    assert "pip uninstall -y tensorflow tensorflow-cpu" in found["two TensorFlows"].fix
    assert found["TF_USE_LEGACY_KERAS"].status == "warning"


def test_libraries_that_take_each_others_place_are_found(tmp_path):
    site, elsewhere = tmp_path / "site", tmp_path / "cuda/lib64"
    install(site, nvidia_cudnn_cu12="9.3", nvidia_cudnn_cu13="9.10", keras="3.15.1")
    own(site, "nvidia_cudnn_cu12", "nvidia/cudnn/lib/libcudnn.so.9")
    own(site, "nvidia_cudnn_cu13", "nvidia/cudnn/lib/libcudnn.so.9")
    elsewhere.mkdir(parents=True)
    (elsewhere / "libcudnn.so.8").touch()
    (elsewhere / "libnccl.so.2").touch()  # of which the wheels bring none
    path = f"{site / 'nvidia/cudnn/lib'}:{elsewhere}"
    machine = a_machine(installed=site, environment={"LD_LIBRARY_PATH": path})
    found = [finding for finding in check_versions(machine) if finding.name == "clashing libraries"]
    assert "nvidia-cudnn-cu12 and nvidia-cudnn-cu13 both bring" in found[0].found
    assert found[1].facts == {"folder": str(elsewhere), "libraries": ["libcudnn"]}
    assert len(found) == 2


def test_a_log_is_shortened_to_the_lines_that_tell():
    text = """2026-01-01 10:00:00.123: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on.
W0000 00:00:1731.5 123 gpu_device.cc:2342] Cannot dlopen some GPU libraries. Please make sure they are there.
Skipping registering GPU devices..."""
    assert read_log(text) == ["Cannot dlopen some GPU libraries.", "Skipping registering GPU devices..."]


@pytest.mark.parametrize(
    ("source", "settings"),
    [
        (
            InputSource(kind="tf.data", has_parallel_map=False, has_prefetch=False, has_cache=False),
            ["num_parallel_calls", "prefetch", "cache"],
        ),
        (InputSource(kind="tf.data", has_parallel_map=True, has_prefetch=True, has_cache=True), []),
        (InputSource(kind="PyDataset", workers=1, uses_processes=False), ["workers=", "use_multiprocessing"]),
        (InputSource(kind="DataLoader", workers=0, pins_memory=False), ["num_workers=", "pin_memory"]),
        (InputSource(kind="generator", workers=0), ["PyDataset", "from_generator"]),
        (InputSource(kind="folder of images", workers=1000, has_cache=True), ["store the images"]),
        (InputSource(kind="Grain"), ["mp_prefetch"]),
    ],
)
def test_a_source_that_is_waited_for_gets_the_settings_that_it_lacks(source, settings):
    advice = advise_input(source, wait_seconds=0.3, step_seconds=0.1)
    assert advice.is_slow
    assert advice.wait_share == pytest.approx(0.75)
    assert [word for word, setting in zip(settings, advice.settings, strict=True) if word not in setting.code] == []


def test_a_source_that_keeps_up_gets_no_advice_and_an_unknown_step_no_verdict():
    source = InputSource(kind="DataLoader", workers=0)
    assert advise_input(source, 0.001, 0.1).is_slow is False
    assert advise_input(source, 0.001, 0.1).settings == ()
    assert advise_input(source, 0.0, 0.0).wait_share == 0.0
    assert advise_input(source, 0.2, None).is_slow is None
    assert advise_input(source, 0.2, None).fix is not None


def test_a_cache_is_advised_where_it_fits_and_on_disk_where_not(monkeypatch):
    source = InputSource(kind="tf.data", has_parallel_map=True, has_prefetch=True, has_cache=False)
    monkeypatch.setattr("fitroom.checks.input_advice.available_bytes", lambda: 4 * GIB)
    assert advise_input(source, 1, 1, cache_bytes=GIB).fix == "dataset.cache()"
    large = advise_input(source, 1, 1, cache_bytes=40 * GIB)
    assert large.fix == 'dataset.cache("decoded.cache")'
    assert "40.00 GiB of 4.00 GiB" in large.settings[0].why


def test_a_diagnosis_prints_itself_and_finds_by_name():
    failed = Finding(status="failure", name="CUDA_VISIBLE_DEVICES", found="hides <every> card.", fix="unset it")
    device = Finding(status="failure", name="device", found="on the CPU", facts={"kind": "cpu"})
    diagnosis = Diagnosis(backend="torch", findings=(device, failed))
    assert (diagnosis.is_ok, diagnosis.uses_gpu, len(diagnosis)) == (False, False, 2)
    assert diagnosis["device"] is device
    assert "device" in diagnosis
    with pytest.raises(KeyError):
        diagnosis["probe"]
    text = str(diagnosis)
    assert "FAILURE  CUDA_VISIBLE_DEVICES  hides <every> card." in text
    assert "fix: unset it" in text
    assert text.endswith("training on the GPU will not work with PyTorch")
    assert "hides &lt;every&gt; card." in diagnosis._repr_html_()
    assert diagnosis.to_dict()["findings"][1]["fix"] == "unset it"


def test_a_backend_that_is_missing_is_named_with_who_asked_for_it(monkeypatch, tmp_path):
    (tmp_path / "keras.json").write_text('{"backend": "jax"}')
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setattr("fitroom.backends.choose._is_installed", lambda name: False)
    monkeypatch.setattr("fitroom.backends.choose._imported_keras_backend", lambda: None)
    diagnosis = diagnose(None, run_dir=tmp_path)
    assert diagnosis.backend == "jax"
    assert str(tmp_path / "keras.json") in diagnosis["backend"].found
    assert str(diagnosis).endswith("training will not work with JAX")
