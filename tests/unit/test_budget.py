import subprocess
import sys
from html import escape
from types import ModuleType, SimpleNamespace

import pytest

from fitroom.backends.default_share import share_note
from fitroom.budget import Budget
from fitroom.cards.catalogue import find_card
from fitroom.cards.nvml import LiveGpu, live_gpus
from fitroom.cards.overhead import context_bytes
from fitroom.cards.utilization import UtilizationReader
from fitroom.errors import InputError
from fitroom.estimating.estimate import choose_card
from fitroom.planning.max_batch import MaxBatch
from fitroom.planning.target import choose_target

MIB = 1024**2
GIB = 1024**3


@pytest.mark.parametrize(
    ("value", "expected"),
    [(4096, 4096), ("12GiB", 12 * GIB), ("12GB", 12 * 10**9), ("12000MB", 12 * 10**9), (" 1.5 gib ", 3 * GIB // 2)],
)
def test_a_size_is_the_limit_as_it_stands(value: int | str, expected: int):
    assert Budget.of(value).bytes == expected


def test_a_card_gives_its_memory_less_context_and_libraries():
    card = find_card("RTX 3060")
    budget = Budget.of("rtx3060", backend="torch")
    assert budget.bytes == card.memory_bytes - context_bytes(card, "torch")
    assert "RTX 3060" in budget.source


def test_a_card_in_this_machine_that_the_catalogue_lacks_is_estimated_as_the_default(monkeypatch):
    unlisted = LiveGpu(index=0, name="NVIDIA GeForce RTX 5055 XT", memory_bytes=12 * GIB, used_bytes=0)
    monkeypatch.setattr("fitroom.cards.nvml.live_gpus", lambda: (unlisted,))
    card, notes = choose_card(None)
    assert card.name == "T4"
    assert notes == ("NVIDIA GeForce RTX 5055 XT is not in the catalogue: this is for a T4, the default.",)


def test_without_a_card_a_plan_is_for_the_one_that_an_estimate_is_for(driver):
    driver(present=False)
    card, notes = choose_card(None)
    room = choose_target(None, None, "torch")
    assert (room.card, room.budget) == (card, Budget.of("T4", backend="torch"))
    assert room.notes == notes
    assert "--gpu names another" in notes[0]


def test_where_a_framework_takes_less_than_the_card_gives_estimates_and_plans_say_so(monkeypatch):
    monkeypatch.delenv("XLA_CLIENT_MEM_FRACTION", raising=False)
    (note,) = choose_target(None, "RTX 3060", "jax").notes
    assert note == (
        "JAX by itself takes 8.96 GiB of RTX 3060: estimates are for that. The card can give 11.17 GiB: plans are for "
        "that, and `fitroom train --budget 11.17GiB` or XLA_CLIENT_MEM_FRACTION=0.93 before JAX starts has it taken."
    )
    assert share_note(find_card("RTX 3060"), "torch") == ()
    assert choose_target("8GiB", "RTX 3060", "jax").notes == ()
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", "0.95")
    assert choose_target(None, "RTX 3060", "jax").notes == ()


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        (Budget.of("12GiB"), ["12.00 GiB for training, as given"]),
        (find_card("RTX 3060"), ["Name                    RTX 3060", "Budget with jax         11.17 GiB"]),
        (
            MaxBatch(plain=48, with_remat=112, budget=Budget.of("T4", backend="torch")),
            ["largest whole batch       48", "with the most recomputed  112", "budget                    14."],
        ),
    ],
)
def test_budgets_cards_and_largest_batches_show_themselves(value, lines):
    for line in lines:
        assert line in str(value)
        assert escape(line.split("  ")[0]) in value._repr_html_()


def test_a_bare_number_that_is_a_card_means_the_card():
    assert Budget.of("3060") == Budget.of("RTX 3060")
    assert Budget.of("123456789").bytes == 123456789


def test_an_unknown_backend_gets_the_smallest_budget():
    budgets = [Budget.of("T4", backend=backend).bytes for backend in ("jax", "tensorflow", "torch")]
    assert Budget.of("T4").bytes == min(budgets)


def test_a_budget_is_its_own_budget():
    budget = Budget(bytes=5, source="test")
    assert Budget.of(budget) is budget


def test_a_mac_keeps_a_third_or_a_quarter_for_itself():
    assert Budget.of("M1 8GB").bytes == 8 * GIB * 2 // 3
    assert Budget.of("M2 Max 64GB").bytes == 48 * GIB


@pytest.mark.parametrize("value", ["", "lots", "12 potatoes", "0GiB", "-3GiB", "RTX 3600", 1.5, True, [1]])
def test_what_is_neither_a_size_nor_a_card_is_refused_naming_both_forms(value: object):
    with pytest.raises(InputError, match="a size or the name of a card") as raised:
        Budget.of(value)  # type: ignore[arg-type]
    assert repr(value) in raised.value.message
    assert "'12GiB'" in (raised.value.hint or "")
    assert "'RTX 3060'" in (raised.value.hint or "")


@pytest.mark.parametrize("value", [0, -1])
def test_bytes_must_be_positive(value: int):
    with pytest.raises(InputError, match="positive"):
        Budget.of(value)


def test_nearest_cards_are_suggested():
    with pytest.raises(InputError) as raised:
        Budget.of("RTX 3600")
    assert "Did you mean" in (raised.value.hint or "")


class FakeNvml(ModuleType):
    """Stands in for the driver, which a machine without an NVIDIA card cannot have."""

    class NVMLError(Exception):
        pass

    def __init__(self, gpus: list[SimpleNamespace], *, driver: bool = True) -> None:
        super().__init__("pynvml")
        self.gpus, self.driver, self.is_open = gpus, driver, False

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.driver:
            raise self.NVMLError("NVML Shared Library Not Found")
        self.is_open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> SimpleNamespace:  # noqa: N802
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, gpu: SimpleNamespace) -> str:  # noqa: N802
        return gpu.uuid

    def nvmlDeviceGetName(self, gpu: SimpleNamespace) -> str:  # noqa: N802
        return gpu.name

    def nvmlDeviceGetMemoryInfo(self, gpu: SimpleNamespace) -> SimpleNamespace:  # noqa: N802
        if gpu.total is None:
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(total=gpu.total, used=gpu.used)

    def nvmlDeviceGetCudaComputeCapability(self, gpu: SimpleNamespace) -> tuple[int, int]:  # noqa: N802
        return (7, 5)

    def nvmlDeviceGetUtilizationRates(self, gpu: SimpleNamespace) -> SimpleNamespace:  # noqa: N802
        if gpu.busy is None:
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(gpu=gpu.busy, memory=0)

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: SimpleNamespace) -> list[SimpleNamespace]:  # noqa: N802
        if gpu.processes is None:
            raise self.NVMLError("Not Supported")
        return gpu.processes


def fake_gpu(
    name: str, uuid: str, *, total: int | None = 16 * GIB, used: int = GIB, processes=(), busy: int | None = 0
) -> SimpleNamespace:
    return SimpleNamespace(name=name, uuid=uuid, total=total, used=used, processes=processes, busy=busy)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def install(*gpus: SimpleNamespace, present: bool = True) -> FakeNvml:
        fake = FakeNvml(list(gpus), driver=present)
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        return fake

    return install


def test_without_a_driver_there_are_no_live_gpus(driver):
    driver(present=False)
    assert live_gpus() == ()
    assert UtilizationReader().read() == {}


def test_utilization_is_of_the_visible_cards_in_a_frameworks_order(driver, monkeypatch):
    cards = [fake_gpu("T4", "GPU-a", busy=10), fake_gpu("T4", "GPU-b", busy=97), fake_gpu("T4", "GPU-c", busy=None)]
    fake = driver(*cards)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2,0")
    reader = UtilizationReader()
    assert reader.read() == {"gpu:0": 0.97, "gpu:2": 0.1}
    assert fake.is_open
    reader.close()
    assert not fake.is_open
    assert reader.read() == {}


@pytest.mark.parametrize("value", [None, "live", "LIVE"])
def test_the_live_budget_without_a_gpu_says_what_to_give_instead(driver, value: str | None):
    driver(present=False)
    with pytest.raises(InputError, match="No NVIDIA GPU") as raised:
        Budget.of(value)
    assert "12GiB" in (raised.value.hint or "")


def test_the_live_budget_leaves_what_others_use(driver):
    fake = driver(fake_gpu("Tesla T4", "GPU-a"))
    assert live_gpus() == (
        LiveGpu(index=0, name="Tesla T4", memory_bytes=16 * GIB, used_bytes=GIB, compute_capability=(7, 5)),
    )
    budget = Budget.of("live", backend="jax")
    assert budget.bytes == 15 * GIB - context_bytes(find_card("T4"), "jax")
    assert "Tesla T4" in budget.source
    assert not fake.is_open


def test_what_this_process_holds_counts_as_free(driver):
    import os

    processes = [
        SimpleNamespace(pid=os.getpid(), usedGpuMemory=700 * MIB),
        SimpleNamespace(pid=1, usedGpuMemory=300 * MIB),
    ]
    driver(fake_gpu("Tesla T4", "GPU-a", used=1000 * MIB, processes=processes))
    assert live_gpus()[0].used_bytes == 300 * MIB


def test_a_card_outside_the_catalogue_still_gives_a_budget(driver):
    driver(fake_gpu("NVIDIA Imaginary 9000", "GPU-a", processes=None))
    assert Budget.of(None).bytes == 15 * GIB - context_bytes(None, None)


def test_a_card_full_of_other_work_is_refused(driver):
    driver(fake_gpu("Tesla T4", "GPU-a", used=16 * GIB - MIB))
    with pytest.raises(InputError, match="less than context"):
        Budget.of("live")


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("1", [1]),
        ("2, 0", [2, 0]),
        ("1,9,0", [1]),
        ("1,1", [1]),
        ("GPU-cc", [2]),
        ("GPU-a", []),
        ("GPU-ab,GPU-cc", [1, 2]),
        ("MIG-x", []),
        ("none", []),
    ],
)
def test_visible_devices_are_honoured(driver, monkeypatch: pytest.MonkeyPatch, visible: str | None, indices: list[int]):
    driver(fake_gpu("A", "GPU-aa11"), fake_gpu("B", "GPU-ab22"), fake_gpu("C", "GPU-cc33"))
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.index for gpu in live_gpus()] == indices


def test_a_card_that_does_not_tell_its_memory_is_left_out(driver):
    driver(fake_gpu("Shared", "GPU-a", total=None), fake_gpu("Own", "GPU-b"))
    assert [gpu.name for gpu in live_gpus()] == ["Own"]


def test_a_budget_from_a_size_loads_nothing_heavy():
    script = "import sys, fitroom.budget; print([m for m in ('keras', 'numpy', 'pynvml', 'rich') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.strip() == "[]"
