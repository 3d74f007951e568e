"""What a leak is called, and the sentence that says how much grows and where."""

import pytest

from fitroom.holders import Holder
from fitroom.loops.advice import classify_holder
from fitroom.loops.leaks import Growth, Leaks
from fitroom.loops.slope import Slope
from fitroom.report.loops.words import judge_leaks


def growth(memory, bytes_a_round):
    slope = Slope(bytes_a_round=bytes_a_round, low_bytes=bytes_a_round, high_bytes=bytes_a_round)
    return Growth(memory=memory, counted_by="a test", readings_bytes=(), slope=slope, limit_bytes=4096)


@pytest.mark.parametrize(
    ("device", "host", "says"),
    [
        (30 * 1024, 3 * 2**20, "Leaks 30.0 KiB a round on the device and 3.0 MiB a round on the host."),
        (0, 3 * 2**20, "Leaks 3.0 MiB a round on the host."),
    ],
)
def test_the_verdict_names_each_memory_that_grows(device, host, says):
    found = Leaks(
        verdict="leaks",
        bytes_a_round=device or host,
        rounds=9,
        warm_up_rounds=3,
        growths=(growth("device", device), growth("host", host)),
        suspects=(),
    )
    assert judge_leaks(found) == says


@pytest.mark.parametrize(
    ("by", "kind"), [(("Sequential 'sequential_11'", "Adam 'adam_11'"), "model"), (("Adam 'adam_11'",), "optimizer")]
)
def test_an_optimizer_that_a_kept_model_holds_is_a_kept_model(by, kind):
    holder = Holder(root="`kept`, a dict in folds.py", kind="variable", by=by)
    assert classify_holder("optimizer 'adam'", holder, None) == kind
