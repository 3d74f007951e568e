"""The knobs a planner may turn: which are free, which must be allowed, and what each changes about the result."""

from collections.abc import Iterable

from fitroom.errors import InputError, UnknownNameError

KEEPABLE = ("precision", "remat", "micro-batch", "jit")
"""What `keep` may name: these stay as the model has them."""

ALLOWABLE = ("image-size", "optimizer", "frozen-layers")
"""What `allow` may name: these are never turned unasked, and no further than memory wants it."""

LEAN_OPTIMIZERS = ("adafactor", "lion", "sgd")
"""What `allow="optimizer"` tries, by how little the training differs from Adam's; each has fewer slots."""

FROZEN_PARTS = (0.25, 0.5, 0.75, 1.0)
"""Of the layers with weights, which `allow="frozen-layers"` leaves untrained from the first on; the last one is always
trained."""


def knobs_of(option: str, named: str | Iterable[str], known: tuple[str, ...]) -> frozenset[str]:
    """The knobs that `keep` or `allow` names, as fields of `Recipe` are called.

    >>> sorted(knobs_of("keep", "precision,micro-batch", KEEPABLE))
    ['micro_batch', 'precision']
    """
    words = named.split(",") if isinstance(named, str) else list(named)
    found = set()
    for word in words:
        if not isinstance(word, str):
            raise InputError(f"`{option}` takes names of knobs. Received: {word!r}.", hint=f"known are: {known}")
        name = word.strip().lower().replace("_", "-")
        if name not in known:
            raise UnknownNameError(f"knob for `{option}`", word, known, more=f"known are: {', '.join(known)}")
        found.add(name.replace("-", "_"))
    return frozenset(found)
