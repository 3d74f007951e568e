"""The search for segments, against trying everything; on made-up chains, so that no framework is needed."""

import itertools

import numpy as np
import pytest

import fitroom
from drawn_chains import drawn_chain
from fitroom.remat.call_costs import BackwardNeeds
from fitroom.remat.chain import Chain
from fitroom.remat.search import Search
from fitroom.remat.segmentation import Segment, make_segmentation


def every_segmentation(search):
    """All choices of segments between the search's boundaries."""
    bounds = [int(bound) for bound in search.boundaries]
    for count in range(len(bounds) + 1):
        for chosen in itertools.combinations(bounds, count):
            pairs = list(itertools.pairwise(chosen))
            for kept in itertools.product((True, False), repeat=len(pairs)):
                segments = [Segment(start=a, stop=b) for (a, b), is_in in zip(pairs, kept, strict=True) if is_in]
                yield make_segmentation(search.chain, segments)


@pytest.mark.parametrize("branching", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_no_choice_of_segments_is_cheaper_within_any_budget(seed, branching):
    search = Search(drawn_chain(seed, branching=branching))
    segmentations = {segmentation.segments: segmentation for segmentation in every_segmentation(search)}.values()
    smallest = min(segmentation.peak_bytes for segmentation in segmentations)
    assert search.smallest_peak_bytes == smallest
    assert search.cheapest(smallest - 1) is None
    for budget in sorted({segmentation.peak_bytes for segmentation in segmentations}):
        found = make_segmentation(search.chain, search.cheapest(budget))
        assert found.peak_bytes <= budget
        assert found.operations == min(
            segmentation.operations for segmentation in segmentations if segmentation.peak_bytes <= budget
        )


def test_less_memory_never_costs_less():
    search = Search(drawn_chain(5, branching=True))
    budgets = range(search.smallest_peak_bytes, search.chain.plain_peak_bytes + 1)
    operations = [make_segmentation(search.chain, search.cheapest(budget)).operations for budget in budgets]
    assert operations == sorted(operations, reverse=True)
    assert operations[-1] == 0


def test_the_last_call_of_a_segment_is_not_run_again_where_its_output_is_kept_anyway():
    """Convolution, normalisation, activation, convolution: the second convolution only makes what is kept."""
    needs = (
        BackwardNeeds(inputs=True),
        BackwardNeeds(inputs=True),
        BackwardNeeds(outputs=True),
        BackwardNeeds(inputs=True),
        BackwardNeeds(inputs=True),
    )
    chain = Chain(
        made=np.arange(-1, 5),
        last_used=np.arange(6),
        tensor_bytes=np.array([0, 8, 8, 8, 8, 8]),
        needed_bytes=np.array([0, 8, 0, 8, 8, 0]),
        extra_bytes=np.zeros(5, np.int64),
        made_bytes=np.full(5, 8),
        operations=np.array([100, 1, 1, 100, 1]),
        efforts=np.array([100, 1, 1, 100, 1]),
        users=((1,), (2,), (3,), (4,), ()),
        needs=needs,
    )
    assert list(chain.recomputed_before(4)) == [True, True, True, False]
    assert make_segmentation(chain, [Segment(start=1, stop=4)]).operations == 2


def test_a_recipe_with_segments_survives_its_dictionary():
    for remat in ("blocks", fitroom.Remat(budget="6GiB"), fitroom.Remat(segments=[("conv1", "add"), "conv2"])):
        recipe = fitroom.Recipe(remat=remat)
        assert fitroom.Recipe(**recipe.to_dict()) == recipe
    assert fitroom.Recipe(remat=fitroom.Remat(budget="6GiB")).to_dict() == {"remat": {"budget": "6GiB"}}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: fitroom.Recipe(remat="block"), "Unknown remat"),
        (lambda: fitroom.Remat(), "either `segments` or `budget`"),
        (lambda: fitroom.Remat(segments=["a"], budget="6GiB"), "Received: both"),
        (lambda: fitroom.Remat(budget="six"), "A size must be a positive number"),
        (lambda: fitroom.Remat(segments=[("a", "b", "c")]), "first and its last layer"),
    ],
)
def test_what_is_no_remat_says_so(wrong, said):
    with pytest.raises(fitroom.InputError, match=said):
        wrong()
