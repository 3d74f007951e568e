"""Plain values come back from JSON with their types, however often they were encoded."""

import collections
import json

import ml_dtypes
import numpy as np
import pytest

from fitroom.files.values import NotPlainError, decode, encode

VALUE = {
    "numbers": [1, 2.5, True, None, "text", float("inf")],
    "tuple": (1, ("two", [3, (4, (5, (6,)))])),
    "set": {1, 2},
    "deque": collections.deque([1, 2], maxlen=2),
    "keys": {1: "int", (2, 3): "tuple", "~array": "a mark that is none"},
    "arrays": [np.arange(3), {"deep": np.array(1.5, ml_dtypes.bfloat16)}],
    "scalar": np.float32(0.1),
    "empty": [[], {}, (), np.zeros((0, 2))],
}


def assert_same(one, other):
    assert type(one) is type(other)
    if isinstance(one, np.ndarray | np.generic):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple | collections.deque):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            assert_same(mine, theirs)
    else:
        assert one == other


@pytest.mark.parametrize("times", [1, 2, 3])
def test_values_come_back_as_they_were(times):
    arrays, coded = [], VALUE
    for _ in range(times):
        held: list = []
        coded = encode(coded, held)
        arrays.append(held)
    coded = json.loads(json.dumps(coded))
    for held in reversed(arrays):
        coded = decode(coded, held)
    assert_same(VALUE, coded)
    assert coded["deque"].maxlen == 2


def test_what_is_encoded_does_not_change_with_the_value():
    value = {"losses": [1, 2], "nested": [[1], {"a": [2]}]}
    coded = encode(value, [])
    value["losses"].append(3)
    value["nested"][1]["a"].append(3)
    assert coded == {"losses": [1, 2], "nested": [[1], {"a": [2]}]}


@pytest.mark.parametrize("odd", [print, object(), {"a": [b"bytes"]}, np.array(["text"]), np.zeros(2, [("a", "i4")])])
def test_what_is_more_than_data_is_refused(odd):
    with pytest.raises(NotPlainError):
        encode(odd, [])


def test_a_list_that_holds_itself_is_refused():
    endless: list = []
    endless.append(endless)
    with pytest.raises(NotPlainError, match="nested"):
        encode(endless, [])
