"""What `fitroom train` settles before it trains, by real plans."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fitroom.backends.choose import current_backend
from fitroom.backends.contract import Device
from fitroom.budget import Budget
from fitroom.cards.catalogue import find_card
from fitroom.classify import records
from fitroom.classify.choice import Choice, Chooser
from fitroom.classify.compiling import compile_for
from fitroom.classify.machine import Machine
from fitroom.classify.network import build_network
from fitroom.classify.options import TrainOptions
from fitroom.classify.phases import build_phases
from fitroom.classify.preparation import prepare
from fitroom.errors import InputError
from fitroom.keras_model.loading.source import ModelSource
from fitroom.planning.identity import describe_difference, model_digest
from fitroom.runs.job import Job
from fitroom.train.planned import recipes_of
from picture_runs import make_pictures

# What is chosen does not depend on the backend: the one whose estimates are the quickest does. JAX and TensorFlow plan
# in tests/backends/test_estimates.py and tests/backends/jax/test_planning.py.
pytestmark = pytest.mark.backends("torch")

MIB = 2**20
CLASSES = ("blue", "green", "red")
NETS = '''
import keras
from keras import layers


def blocks(classes, image_size=64):
    """Shortcuts, so that there is something to recompute, and statistics to spare."""
    x = inputs = keras.Input((image_size, image_size, 3))
    x = layers.Conv2D(16, 3, padding="same", use_bias=False)(layers.Rescaling(1 / 255)(x))
    for _ in range(2):
        y = layers.Conv2D(16, 3, padding="same", use_bias=False)(x)
        x = layers.add([x, layers.Activation("relu")(layers.BatchNormalization()(y))])
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(classes, activation="softmax")(x), name="blocks")


def wide(classes, image_size):
    """Nearly all of its memory is weights and what the optimizer keeps of them."""
    inputs = keras.Input((image_size, image_size, 3))
    x = layers.Dense(1200)(layers.Dense(1200, activation="relu")(layers.GlobalAveragePooling2D()(inputs)))
    return keras.Model(inputs, layers.Dense(classes, activation="softmax")(x), name="wide")


def of_one_size(classes):
    return blocks(classes, 64)
'''


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory):
    folder = make_pictures(tmp_path_factory.mktemp("choice"))
    (folder / "nets.py").write_text(NETS)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setattr(sys, "path", list(sys.path))
        yield folder


def options(*, keep=(), **asked):
    """Keras's own kernels are kept: fused ones leave little to choose in the memory of these nets."""
    usual = {"folder": "pictures", "model": "nets.py:blocks", "batch_size": 32, "image_size": 64, "run_dir": "run"}
    return TrainOptions(keep=[*keep, "kernels"], **usual | asked)


def on_a_card(budget_mib, name):
    """As if the card were here: nothing is computed before training."""
    return Machine(
        backend=current_backend(),
        device=Device(name="gpu:0", kind="gpu", description=name),
        gpu=None,
        budget=Budget(bytes=int(budget_mib * MIB), source="given"),
        card=find_card(name),
    )


def chosen(budget_mib, card="L4", **asked):
    wanted = options(**asked)
    chooser = Chooser(
        options=wanted,
        machine=on_a_card(budget_mib, card),
        source=ModelSource(text=wanted.model, image_size=64),
        images=SimpleNamespace(classes=CLASSES, counts={"train": dict.fromkeys(CLASSES, 100)}),
        phase=build_phases(1, freeze=False, unfreeze_after=None)[0],
        say=lambda text: None,
    )
    choice = chooser.choose()
    return choice, "\n".join(choice.lines(wanted, own_size=64))


@pytest.fixture(scope="module")
def plain():
    """All that could be chosen left alone, in plenty of memory; and what is said of it."""
    return chosen(8000, keep=["precision"])


@pytest.fixture(scope="module")
def whole_mib(plain):
    """What a whole batch needs."""
    return plain[0].plan.estimate.required_bytes / MIB


def test_on_a_card_the_planner_chooses_the_precision_and_says_why(plain):
    choice, said = chosen(8000, batch_size=512)  # of a small batch the card hardly notices the precision
    assert (choice.precision.policy, choice.plan.recipe.precision) == ("mixed_bfloat16", "mixed_bfloat16")
    assert "precision: mixed_bfloat16 (about" in said
    assert "times as fast as float32 on L4" in said
    assert "effect on the result: rounding (mixed_bfloat16 in place of float32)" in said
    kept, said = plain
    assert (kept.precision.policy, kept.plan.changes) == ("float32", ())
    assert kept.to_job(32)["recipe"]["micro_batch"] is None
    assert "effect on the result: nothing" in said
    asked, _ = chosen(8000, precision="mixed_float16", keep=["precision"])
    assert (asked.precision.why, asked.plan.changes) == ("asked for", ())


def test_what_does_not_fit_whole_is_recomputed_or_cut_as_is_left_free(whole_mib):
    tight = {"precision": "float32", "budget_mib": 0.7 * whole_mib}
    whole, said = chosen(**tight, keep=["micro-batch"])
    assert whole.to_job(32)["recipe"]["micro_batch"] is None
    assert whole.recipe.remat != "none"
    assert "recomputed" in said
    cut, said = chosen(**tight, keep=["remat"])
    assert (cut.recipe.remat, cut.recipe.micro_batch < 32) == ("none", True)
    assert "batch statistics" in said
    settled, said = chosen(**tight, micro_batch=10)
    assert settled.to_job(32)["recipe"]["micro_batch"] == 8, "four even parts of at most 10"
    assert "Micro-batch 10 was asked for" in said


def test_the_optimizer_is_another_only_where_that_is_allowed_and_needed():
    wide = {"model": "nets.py:wide", "batch_size": 8, "precision": "float32", "keep": ["micro-batch"]}
    own, _ = chosen(2000, **wide, allow=["optimizer"])
    assert own.optimizer == "adam"
    tight_mib = 0.9 * own.plan.estimate.required_bytes / MIB
    lean, said = chosen(tight_mib, **wide, allow=["optimizer"])
    assert lean.optimizer in ("adafactor", "lion", "sgd")
    assert f"optimizer: {lean.optimizer} in place of adam, as allowed" in said
    refused, said = chosen(tight_mib, **wide)
    assert (refused.optimizer, refused.plan) == ("adam", None)
    assert "tries the smallest recipe all the same" in said


def test_the_first_layers_are_frozen_only_where_that_is_allowed_and_needed():
    asked = {"model": "nets.py:wide", "precision": "float32", "keep": ["micro-batch"], "allow": ["frozen-layers"]}
    own, _ = prepared(**asked, budget="2GiB", run_dir="trained")
    assert own.job.frozen_layers is None
    budget = f"{int(0.8 * own.choice.plan.estimate.required_bytes)}B"
    for given in (budget, budget, "1GiB"):  # then it goes on with what it has; and with more memory, but as it was
        frozen, said = prepared(**asked | {"budget": given}, run_dir="frozen")
        model = frozen.network.model
        assert frozen.job.frozen_layers == 2, "the first one alone has next to nothing"
        assert len(model.trainable_variables) == len(own.network.model.trainable_variables) - 4
        assert recipes_of(frozen.choice.plan_for(model), model)
    assert "the first 2 layers with weights are not trained" in said


def test_pictures_are_smaller_only_where_that_is_allowed_and_needed(whole_mib):
    whole = {"precision": "float32", "keep": ["micro-batch", "remat"], "image_size": "auto"}
    own, said = chosen(8000, **whole)
    assert own.image_size == 64
    assert "image size: 64 x 64, unchanged" in said
    smaller, said = chosen(0.6 * whole_mib, **whole)
    assert smaller.image_size == 32
    assert "32 x 32 in place of 64 x 64" in said
    network = build_network(ModelSource(text="nets.py:blocks", image_size=32), num_classes=3, weights=None)
    network.model.compile("adam", "sparse_categorical_crossentropy")
    assert recipes_of(smaller.plan_for(network.model), network.model)
    with pytest.raises(InputError, match="a fixed image size"):
        chosen(100, **whole | {"model": "nets.py:of_one_size"})


def test_where_nothing_fits_the_smallest_recipe_is_tried_all_the_same():
    choice, said = chosen(3)
    assert (choice.plan, choice.recipe.micro_batch, choice.recipe.remat) == (None, 1, "blocks")
    assert "No recipe brings a batch of 32 under 3.0 MiB" in said
    assert "Training tries the smallest recipe all the same" in said
    assert "smallest budget that does" in said


def test_where_no_plan_can_be_made_training_begins_with_whole_batches():
    choice, said = chosen(100, card="MI300X")  # by AMD: nothing is known of its kernels
    assert (choice.plan, choice.recipe.micro_batch) == (None, None)
    assert "No plan could be made" in said
    assert "whole batches, and with a smaller micro-batch where memory runs out" in said


def test_a_choice_is_kept_in_job_json_and_holds_for_a_network_that_was_built_later(whole_mib):
    choice, _ = chosen(0.5 * whole_mib, precision="float32")
    kept = Choice.from_job(Job.from_dict(json.loads(json.dumps(choice.to_job(32)))))
    assert kept.plan.to_dict() == choice.plan.to_dict()
    assert (kept.precision, kept.image_size, kept.optimizer, kept.why) == (
        *(choice.precision, choice.image_size, choice.optimizer),
        choice.why,
    )
    model = build_network(ModelSource(text="nets.py:blocks", image_size=64), num_classes=3, weights=None).model
    for layer in model.layers[:-1]:
        layer.trainable = False  # the head alone, which is still this network
    model.compile("adam", "sparse_categorical_crossentropy")
    plan = kept.plan_for(model)
    assert describe_difference(plan.model_digest, model_digest(model)) is None
    recipes = recipes_of(plan, model)  # it refuses layers that are not there
    assert len(recipes) == 1 + len(choice.plan.fallbacks)


def prepared(**asked):
    """A training that can begin, and what was said on the way."""
    said = []
    wanted = options(**{"batch_size": 16, "budget": "60MiB"} | asked)
    kept = records.read_job(Path(wanted.run_dir))
    found = prepare(wanted, ["fitroom", "train"], kept, SimpleNamespace(said=said.append))
    compile_for(found.phases[-1], found.options, found.network, found.images)
    return found, "\n".join(said)


def test_network_and_pictures_are_of_the_size_that_was_chosen_and_so_is_the_optimizer():
    asked = {"image_size": "auto", "keep": ["remat", "micro-batch"], "allow": ["optimizer"]}
    plenty, _ = prepared(**asked, budget="2GiB", run_dir="plenty")
    assert plenty.network.model.input_shape[1] == 64
    budget = f"{int(0.6 * plenty.choice.plan.estimate.required_bytes)}B"
    for _ in range(2):  # the second time it goes on with what it has
        smaller, _ = prepared(**asked, budget=budget, run_dir="smaller")
        assert smaller.network.model.input_shape[1] == smaller.images.settings.image_size == 32
        assert smaller.job.optimizer == type(smaller.network.model.optimizer).__name__.lower()
        assert recipes_of(smaller.choice.plan_for(smaller.network.model), smaller.network.model)
        assert smaller.job.options["image_size"] == "auto"
        assert smaller.job.options["optimizer"] == "adam"


def test_a_run_that_goes_on_keeps_its_plan_unless_its_memory_is_another(monkeypatch):
    from fitroom.planning.planner import Planner

    planned, plan = [], Planner.plan
    monkeypatch.setattr(Planner, "plan", lambda self, **how: planned.append(self) or plan(self, **how))
    folder = Path("run")
    prepared()
    assert len(planned) == 1
    first = records.read_job(folder)
    assert first.plan["budget"]["bytes"] == 60 * MIB
    prepared(workers=1)
    assert len(planned) == 1
    assert records.read_job(folder).plan == first.plan
    assert (folder / "estimate.json").exists()
    prepared(budget="50MiB", keep=("remat",), allow=("image-size",))
    assert len(planned) > 1
    other = records.read_job(folder)
    assert other.plan["budget"]["bytes"] == 50 * MIB
    assert (other.image_size, other.precision) == (64, first.precision)
