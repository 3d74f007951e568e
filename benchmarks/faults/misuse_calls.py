"""Wrong calls of `fitroom.fit` and its kin beside Keras's own; prints TRIED and, as JSON, each call and its problem.

    python misuse_calls.py FOLDER

A call is survived where fitroom raises an error of its own, or one of the class that Keras raises, or both train; and
where the same model then trains one epoch to a finite loss.
"""

import json
import math
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np

import fitroom

warnings.simplefilter("ignore")
FOLDER = Path(tempfile.mkdtemp(dir=sys.argv[1]))
X = np.random.default_rng(0).normal(size=(24, 6)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")
VAGUE = (AttributeError, KeyError, AssertionError, IndexError, NameError, RecursionError, UnboundLocalError)


def net(**options):
    """A small compiled model."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **options)
    return model


def failing(batches):
    """A generator that raises in its middle."""
    for number in range(batches):
        yield X[:8], Y[:8]
        if number == 1:
            raise OSError("the disk went away")


class FailingCallback(keras.callbacks.Callback):
    """Raises when a batch ends."""

    def on_train_batch_end(self, batch, logs=None):
        """Raise."""
        raise ZeroDivisionError("mine")


fit: Any = fitroom.fit  # called wrongly on purpose
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "no data": ((), {}),
    "data of other lengths": ((X, Y[:5]), {}),
    "data of another shape": ((X[:, :3], Y), {}),
    "labels out of range": ((X, Y + 7), {}),
    "text as data": ((["a"] * 24, Y), {}),
    "empty data": ((X[:0], Y[:0]), {}),
    "a batch size of 0": ((X, Y), {"batch_size": 0}),
    "a negative batch size": ((X, Y), {"batch_size": -3}),
    "a batch size that is text": ((X, Y), {"batch_size": "8"}),
    "epochs that are text": ((X, Y), {"epochs": "two"}),
    "no epochs": ((X, Y), {"epochs": 0}),
    "a callback that is none": ((X, Y), {"callbacks": ["early stopping"]}),
    "a callback that raises": ((X, Y), {"callbacks": [FailingCallback()]}),
    "a validation split of 2": ((X, Y), {"validation_split": 2.0}),
    "validation data of another shape": ((X, Y), {"validation_data": (X[:, :2], Y)}),
    "validation data that is a number": ((X, Y), {"validation_data": 3}),
    "a class weight of text": ((X, Y), {"class_weight": "balanced"}),
    "sample weights of another length": ((X, Y), {"sample_weight": np.ones(3)}),
    "steps that are negative": ((X, Y), {"steps_per_epoch": -1}),
    "a generator that raises": ((failing(4),), {"steps_per_epoch": 4}),
    "NaN in the data": ((X * np.nan, Y), {}),
    "an argument that nobody knows": ((X, Y), {"batchsize": 8}),
}
OWN: dict[str, dict[str, Any]] = {
    "a recipe that is a dict": {"recipe": {"micro_batch": 4}},
    "a plan that is not there": {"plan": FOLDER / "nowhere.json"},
    "a plan that is a number": {"plan": 3},
    "a budget of nonsense": {"budget": "plenty"},
    "a recipe and a budget": {"recipe": fitroom.Recipe(), "budget": "1GiB"},
    "a run folder that is a file": {"run_dir": __file__},
    "a run folder that is full of others": {"run_dir": Path(__file__).parent},
    "a seed of text": {"seed": "one"},
    "a negative seed": {"seed": -5},
}


def error_of(call):
    """What a call raises, or None."""
    try:
        call()
    except Exception as error:
        return error
    return None


def problem_of(kerass, ours, model):
    """What is wrong with an error beside Keras's."""
    if isinstance(ours, VAGUE) and not isinstance(kerass, type(ours)):
        return f"{type(ours).__name__}: {str(ours)[:200]}; Keras: {type(kerass).__name__}"
    if kerass is not None and ours is None:
        return f"nothing raised; Keras: {type(kerass).__name__}: {str(kerass)[:200]}"
    if kerass is None and ours is not None and not isinstance(ours, fitroom.FitroomError):
        return f"{type(ours).__name__}: {str(ours)[:200]}; Keras trains"
    again = error_of(lambda: fitroom.fit(model, X, Y, verbose=0))
    if again is not None:
        return f"the model trains no more: {type(again).__name__}: {str(again)[:200]}"
    return None


for what, (arguments, options) in CALLS.items():
    if what == "a generator that raises":
        kerass = error_of(lambda: net().fit(failing(4), verbose=0, steps_per_epoch=4))
        arguments = (failing(4),)
    else:
        kerass = error_of(lambda: net().fit(*arguments, verbose=0, **options))  # noqa: B023
    model = net()
    ours = error_of(lambda: fit(model, *arguments, verbose=0, **options))  # noqa: B023
    weights = model.get_weights()
    problem = problem_of(kerass, ours, model)
    if what == "NaN in the data":
        problem = None if ours is None else str(ours)
    elif problem is None and not all(math.isfinite(float(np.sum(one))) for one in weights):
        problem = "its weights are not finite"
    print("TRIED", json.dumps([what, problem]), flush=True)
for what, options in OWN.items():
    model = net()
    ours = error_of(lambda: fit(model, X, Y, verbose=0, **options))  # noqa: B023
    is_told = isinstance(ours, fitroom.FitroomError) or (what == "a negative seed" and not isinstance(ours, VAGUE))
    problem = problem_of(None, ours, model) if is_told else f"{type(ours).__name__}: {str(ours)[:200]}"
    print("TRIED", json.dumps([what, problem]), flush=True)
not_compiled = keras.Sequential([keras.Input((6,)), keras.layers.Dense(2)])
for what, call in {
    "a model that is not compiled": lambda: fitroom.fit(not_compiled, X, Y),
    "a model that is None": lambda: fitroom.fit(None, X, Y),
    "a run folder of another model": lambda: (
        fitroom.fit(net(), X, Y, verbose=0, run_dir=FOLDER / "run"),
        fitroom.fit(net(metrics=["accuracy"]), X, Y, verbose=0, run_dir=FOLDER / "run"),
    ),
    "a step without a batch": lambda: fitroom.Step(net())(None, None),
}.items():
    ours = error_of(call)
    is_told = isinstance(ours, fitroom.FitroomError)
    print("TRIED", json.dumps([what, None if is_told else f"{type(ours).__name__}: {str(ours)[:200]}"]), flush=True)
print("DONE", flush=True)
