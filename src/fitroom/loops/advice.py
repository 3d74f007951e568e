"""What kind of leak a holder is a sign of, and what to do about each kind."""

import re
from typing import Any

from fitroom.holders import Holder

_FRESH = "put each round into a block of `with fitroom.fresh():`"

ADVICE = {
    "notebook": "end the cell with a semicolon, or clear the outputs with `%reset -f out`",
    "traceback": (
        "keep the error's text, not the error: `str(error)`; after a failed cell, "
        "`del sys.last_value, sys.last_traceback` and `sys.last_exc`"
    ),
    "registry": f"TensorFlow keeps every traced gradient, and with it the model; {_FRESH}",
    "history": "keep `history.history`, a dictionary of numbers: a History holds its model and the optimizer",
    "callback": "make callbacks anew in each round and keep only their numbers: a callback holds its model",
    "loss": "keep `float(loss)`: a tensor that needs gradients holds everything the backward pass would need",
    "optimizer": "make one optimizer a model, and keep neither it nor its model longer than the round",
    "model": "keep the best model only, or save models to files: `model.save(...)`",
    "layer": (
        "make that layer in the round: a layer from outside keeps a node for each call, and by it the model that it "
        "was called for"
    ),
    "retrace": (
        "call it with tensors of the same shape and type: each new Python number, shape or object is compiled anew; "
        "define it, and compile a model, outside of the loop"
    ),
    "cache": "bound the cache (`maxsize=`), or clear it in each round: `function.cache_clear()`",
    "keras": f"do not register objects in each round: Keras's registries keep them; or {_FRESH}",
    "local": "the variable outlives the round: let the round be a function, or `del` the variable",
    "closure": "the function that was kept holds what it uses: keep the result, not the function",
    "array": "do not keep arrays of each round, only numbers; copy what must stay with `keras.ops.convert_to_numpy`",
    "objects": "do not keep objects of each round, or bound the container that does",
    "host": "do not keep what is made there, or bound what keeps it",
}


def describe_advice(kind: str) -> str:
    """What to do about a kind of leak."""
    return ADVICE[kind]


def classify_holder(owner: str, holder: Holder, sample: Any) -> str:
    """The kind of a leak: by who holds it, then by whose it is.

    Args:
        owner: Whose the arrays are, such as "model 'sequential'", or the name of a type.
        holder: Who holds one of them.
        sample: One of them.
    """
    if holder.kind in ("notebook", "traceback", "keras", "registry", "cache"):
        return holder.kind
    on_the_way = " ".join(holder.by)
    if "(an error)" in on_the_way or owner == "traceback":
        return "traceback"
    if "History" in on_the_way or owner == "History":
        return "history"
    if _has_callback(holder):
        return "callback"
    if holder.kind == "layer":
        return "layer"
    if getattr(sample, "grad_fn", None) is not None:
        return "loss"
    word = owner.partition(" ")[0]
    if word == "optimizer" and not re.search("model|sequential|functional", on_the_way.lower()):
        return "optimizer"
    if word in ("model", "layer", "metric", "optimizer"):
        return "model"
    functions = [each for each in holder.by if each.startswith("function")]
    if any("Trainer." in each for each in functions):  # Keras's own, made anew each time that a model is compiled
        return "retrace"
    if functions:
        return "closure"
    return "local" if holder.kind == "local" else "array"


def _has_callback(holder: Holder) -> bool:
    return any("Callback" in each or each in _CALLBACKS for each in holder.by)


_CALLBACKS = (
    "EarlyStopping",
    "ModelCheckpoint",
    "ReduceLROnPlateau",
    "TensorBoard",
    "CallbackList",
    "BackupAndRestore",
)
