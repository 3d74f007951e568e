"""Which devices train, what each gets of a batch, lists of cards, and the plan for them."""

import pytest

from fitroom.cards.catalogue import find_card
from fitroom.cards.nvml import LiveGpu
from fitroom.distribution import busy
from fitroom.distribution.cards import parse_cards
from fitroom.distribution.current import Distribution, current_distribution, describe, in_force
from fitroom.distribution.overhead import NCCL_BYTES, allocator_bytes
from fitroom.distribution.selection import DeviceSelection
from fitroom.distribution.shares import check_batch, check_weights, share_out, share_ranges
from fitroom.errors import InputError, NothingFitsError, UnknownNameError
from fitroom.estimating.devices import SpreadRequest, why_not_sharded
from fitroom.planning.devices import Need, plan_devices
from fitroom.planning.option import Speed
from fitroom.recipe import Recipe
from sample_plans import sample_plan


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("all", (0, 1, 2, 3)),
        ("2", (0, 1)),
        (3, (0, 1, 2)),
        ("0,2", (0, 2)),
        ([1], (1,)),
        ("3,", (3,)),
        (" ALL ", (0, 1, 2, 3)),
    ],
)
def test_devices_are_named_by_all_a_number_or_their_numbers(text, chosen):
    assert DeviceSelection.of(text).choose(4) == chosen


@pytest.mark.parametrize("text", ["", "0", "-1", "a", "0,0", "1,x", 0, True, None, 1.5, [], [0, "1"], [-1]])
def test_what_names_no_devices_is_refused(text):
    with pytest.raises(InputError, match="Received"):
        DeviceSelection.of(text)


@pytest.mark.parametrize(("text", "said"), [("5", "5 cards were asked for"), ("0,7", "There is no card 7")])
def test_more_devices_than_there_are_is_refused(text, said):
    with pytest.raises(InputError, match=said):
        DeviceSelection.of(text).choose(4, kind="card")


@pytest.mark.parametrize("weights", [(1, 1), (1, 1, 1), (1, 3), (2.5, 1, 1), (1, 1, 1, 1, 1, 1, 1)])
@pytest.mark.parametrize("batch_size", [1, 2, 7, 10, 64, 101])
def test_every_sample_goes_to_exactly_one_device_next_to_its_exact_share(batch_size, weights):
    shares = share_out(batch_size, weights)
    assert sum(shares) == batch_size
    assert all(
        abs(share - batch_size * weight / sum(weights)) < 1 for share, weight in zip(shares, weights, strict=True)
    )
    samples = [sample for start, stop in share_ranges(batch_size, weights) for sample in range(start, stop)]
    assert samples == list(range(batch_size))


def test_a_batch_smaller_than_the_devices_is_refused():
    with pytest.raises(InputError, match="each needs a sample"):
        check_batch(3, 4)
    check_batch(4, 4)


@pytest.mark.parametrize("weights", [(1,), (1, 0), (1, -1), (1, "2"), (1, float("inf")), (True, 1)])
def test_shares_are_a_positive_number_for_each_device(weights):
    with pytest.raises(InputError, match="positive number"):
        check_weights(weights, 2)


def test_a_list_of_cards_counts_each():
    assert [card.name for card in parse_cards("2x RTX 3060, 1x RTX 3090")] == ["RTX 3060", "RTX 3060", "RTX 3090"]


@pytest.mark.parametrize("text", ["", ",", "0x T4", "T4 x 2", "65x T4", "1000000000x T4"])
def test_what_is_no_list_of_cards_is_refused(text):
    with pytest.raises(InputError):
        parse_cards(text)


def test_an_unknown_card_of_a_list_is_named_with_its_likes():
    with pytest.raises(UnknownNameError, match="RTX 3060"):
        parse_cards("2x RTX 3600")


def test_a_distribution_is_in_force_within_its_block():
    two = Distribution(devices=("gpu:0", "gpu:1"), weights=(1.0, 2.0), engine="DDP", batch_statistics="its own")
    with in_force(two):
        assert current_distribution() is two
    assert current_distribution() is None
    assert "21 and 42 samples of a batch of 63" in describe(two, 63, batch_statistics=False)


def test_a_busy_card_is_named(monkeypatch):
    cards = [
        LiveGpu(index=n, name="RTX 3060", memory_bytes=12 * 2**30, used_bytes=used)
        for n, used in enumerate((0, 8 * 2**30))
    ]
    monkeypatch.setattr(busy, "live_gpus", lambda: tuple(cards))
    [note] = busy.busy_notes(("gpu:0", "gpu:1"))
    assert "gpu:1 (RTX 3060) is busy: others use 8.00 GiB of 12.00 GiB" in note
    assert busy.busy_notes(("gpu:0",)) == ()


def test_distribution_adds_gradients_where_the_framework_copies_them():
    assert sum(allocator_bytes("torch", 100, compiled_together=False).values()) == 100
    assert sum(allocator_bytes("tensorflow", 100, compiled_together=False).values()) == 200
    assert not allocator_bytes("jax", 100, compiled_together=True)
    assert NCCL_BYTES == 256 * 2**20


def _planner(speeds):
    def make_plan(share, card):
        rate = speeds[card.name]
        if rate is None:
            raise NothingFitsError("nothing fits", smallest_bytes=1)
        speed = Speed(seconds_per_step=share / rate, samples_per_second=rate, method="roofline")
        return sample_plan(batch_size=share, micro_batch=min(share, 100), speed=speed)

    return make_plan


CARDS = (find_card("RTX 3060"), find_card("RTX 3060"), find_card("RTX 3090"))
GIB = 2**30


def _trial(too_large=()):
    """What stands for the estimate of a recipe on another card; which micro-batches there are too large for it."""

    def try_recipe(recipe, share, card):
        size = recipe.micro_batch or share
        speed = Speed(seconds_per_step=0.1, samples_per_second=share / 0.1, method="roofline")
        return Need(micro_batch=size, required_bytes=size * GIB, fits=(card.name, size) not in too_large, speed=speed)

    return try_recipe


def test_faster_cards_get_more_samples_where_the_engine_allows_it():
    plan = plan_devices(CARDS, 400, "torch", _planner({"RTX 3060": 100, "RTX 3090": 200}), _trial(), "its own")
    assert plan.samples == (100, 100, 200)
    assert plan.binding == "RTX 3090"
    assert "least room" in plan.why


def test_on_jax_all_get_the_same_and_the_slowest_binds():
    plan = plan_devices(CARDS, 90, "jax", _planner({"RTX 3060": 100, "RTX 3090": 200}), _trial(), "all samples")
    assert plan.samples == (30, 30, 30)
    assert plan.binding == "RTX 3060"
    assert plan.seconds_per_step == pytest.approx(0.3)
    assert plan.to_dict()["binding"] == "RTX 3060"


def test_on_jax_the_samples_that_do_not_divide_are_named():
    plan = plan_devices(CARDS, 92, "jax", _planner({"RTX 3060": 100, "RTX 3090": 200}), _trial(), "all samples")
    assert plan.samples == (30, 30, 30)
    assert "2 samples that do not divide are computed by all cards" in plan.why


def test_every_card_is_shown_with_the_recipe_that_all_use():
    plan = plan_devices(CARDS, 600, "jax", _planner({"RTX 3060": 100, "RTX 3090": 200}), _trial(), "all samples")
    assert plan.recipe.micro_batch == plan.micro_batch == 100
    assert {each.card.name: each.need.micro_batch for each in plan.shares} == {"RTX 3060": 100, "RTX 3090": 100}
    assert next(each for each in plan.shares if each.card.name == "RTX 3090").need.required_bytes == 100 * GIB


@pytest.mark.parametrize(("backend", "on_3060"), [("torch", 100), ("tensorflow", 50)])
def test_a_share_is_split_as_the_engine_splits_it(backend, on_3060):
    plan = plan_devices(CARDS, 400, backend, _planner({"RTX 3060": 100, "RTX 3090": 200}), _trial(), "its own")
    assert {each.card.name: each.need.micro_batch for each in plan.shares} == {"RTX 3060": on_3060, "RTX 3090": 100}
    assert plan.micro_batch == 100


def test_a_recipe_that_does_not_fit_on_another_card_is_not_taken():
    planner = _planner({"RTX 3060": 100, "RTX 3090": 200})
    too_large = {("RTX 3060", 100), ("RTX 3090", 200)}
    plan = plan_devices(CARDS, 400, "torch", planner, _trial(too_large), "its own")
    assert plan.recipe == Recipe(remat="blocks", micro_batch=64)  # the first fallback that fits on both
    everything = {(card.name, size) for card in CARDS for size in range(1, 300)}
    with pytest.raises(NothingFitsError, match="No one recipe fits on all"):
        plan_devices(CARDS, 400, "torch", planner, _trial(everything), "its own")


def test_why_weights_are_not_divided_is_said():
    assert "--backend jax" in str(why_not_sharded("tensorflow", 2))
    assert "FSDP2" in str(why_not_sharded("torch", 2))
    assert "more cards" in str(why_not_sharded("jax", 1))


def test_a_card_that_cannot_train_its_share_is_named():
    with pytest.raises(NothingFitsError, match="RTX 3060 cannot train its share of 30"):
        plan_devices(CARDS, 90, "jax", _planner({"RTX 3060": None, "RTX 3090": 200}), _trial(), "all samples")


def test_sharded_weights_need_several_devices():
    alone = SpreadRequest(devices=1, shard_weights=True, backend="jax", compiles=True)
    with pytest.raises(InputError, match="Received: one device"):
        alone.check(8, measure=False, training=True)
