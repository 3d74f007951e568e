"""The slope of readings and its interval."""

import random

import pytest

from fitroom.loops.slope import FEWEST_READINGS, fit_slope


def test_one_reading_far_off_moves_the_slope_little():
    readings = [float(10 * i) for i in range(12)]
    readings[6] += 10_000
    assert fit_slope(readings).bytes_a_round == pytest.approx(10, abs=1)


def test_too_few_readings_have_no_slope():
    assert fit_slope([1.0] * (FEWEST_READINGS - 1)) is None
    assert fit_slope([1.0] * FEWEST_READINGS).high_bytes == 0


@pytest.mark.parametrize(("count", "slope"), [(7, 0.0), (12, 3.0), (60, 0.0)])
def test_the_interval_holds_the_true_slope_in_95_of_100_cases(count, slope):
    draw = random.Random(count)
    cases = 600 if count < 20 else 200
    inside = 0
    for _ in range(cases):
        found = fit_slope([slope * i + draw.gauss(0, 20) for i in range(count)])
        inside += found.low_bytes <= slope <= found.high_bytes
    assert inside / cases > 0.93
