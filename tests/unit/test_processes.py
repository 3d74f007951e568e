"""Which of several processes is named when a training on several devices fails."""

from fitroom.cli.processes import _find_culprit
from fitroom.events import PEER_LOST

LOST = ["error: Another process of this training is gone", "", f"hint: {PEER_LOST}"]
FAILED = ["fitroom: running train.py", "Traceback (most recent call last):", "RuntimeError: in a callback"]


def test_the_process_with_an_error_of_its_own_is_named_before_one_that_lost_another():
    assert _find_culprit(0, {1: FAILED}) == 1
    assert _find_culprit(1, {1: LOST, 2: FAILED}) == 2
    assert _find_culprit(0, {1: ["error: A batch of 7 cannot be shared out"], 2: LOST}) == 1


def test_without_an_error_of_its_own_the_first_to_end_is_named():
    assert _find_culprit(1, {1: ["fitroom: running train.py"], 2: LOST}) == 1
    assert _find_culprit(0, {}) == 0
