"""Segments for any model of `remat_cases`, and what is compared of two trainings."""

import numpy as np

import fitroom
from fitroom.remat.graph import functional_of, layer_graph


def in_threes(model):
    """Segments of three calls, one after another, wherever that cuts; the layers that it holds of any other model."""
    if functional_of(model) is None:
        return "blocks"
    calls = layer_graph(model).calls
    starts = range(0, len(calls) - 1, 3)
    return fitroom.Remat(segments=[(calls[n].name, calls[min(n + 2, len(calls) - 1)].name) for n in starts])


def assert_close(found, expected, case):
    for one, other in zip((*found[0], found[1]), (*expected[0], expected[1]), strict=True):
        assert one.keys() == other.keys()
        for name, value in other.items():
            np.testing.assert_allclose(one[name], value, rtol=case.rtol, atol=case.atol, err_msg=name)
