"""The digest of the model that a plan is for: it refuses another model, says what differs, and renumbers layers."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fitroom.keras_model.fingerprint import layers_digest
from fitroom.keras_model.private import all_layers
from fitroom.recipe import Remat

_NUMBERED = re.compile(r"(?P<base>.*?)(?:_(?P<number>\d+))?(?P<again>#\d+)?")
"""A name as Keras numbers it, and as a graph counts the calls of one layer: "add_3", "dense#2"."""

_COUNTED = ("layers", "variables", "numbers")


def model_digest(model: Any) -> str:
    """Describe a built model in one line. Its precision, its values and its compile arguments do not count.

    `numbered` is the number at which Keras began to count layers without a name: 0 for the first model of a process.

    >>> model_digest(model)  # doctest: +SKIP
    'layers=133 variables=236 numbers=20871725 sha256=3f5b... numbered=add:12,conv2d:4'
    """
    parts = {
        "layers": len(all_layers(model)),
        "variables": len(model.variables),
        "numbers": model.count_params(),
        "sha256": layers_digest(model),
    }
    if first := _first_numbers(_call_names(model)):
        parts["numbered"] = ",".join(f"{base}:{number}" for base, number in sorted(first.items()))
    return _join(parts)


def layers_of(digest: str) -> str:
    """The part of a model's digest that tells its layers and variables, as `layers_digest` has it.

    >>> layers_of("layers=3 sha256=b2 numbered=add:4")
    'b2'
    """
    return _parts(digest).get("sha256", "")


def describe_difference(of_plan: str, of_model: str) -> str | None:
    """Say what differs between the models of two digests; None where only the numbering differs.

    >>> describe_difference("layers=3 variables=4 numbers=90 sha256=a1", "layers=3 variables=6 numbers=99 sha256=b2")
    '4 variables there and 6 here, 90 numbers there and 99 here'
    """
    there, here = _parts(of_plan), _parts(of_model)
    if there.get("sha256") == here.get("sha256"):
        return None
    counted = [
        f"{int(there[name]):,} {name} there and {int(here[name]):,} here"
        for name in _COUNTED
        if name in there and there[name] != here[name]
    ]
    return ", ".join(counted) or "the layers are as many, but made or connected differently"


def rename_segments(remat: Remat, of_plan: str, of_model: str) -> Remat:
    """Return the segments with the layer names of this process: Keras numbers layers on from model to model.

    >>> rename_segments(Remat(segments=[("conv", "add_1")]), "numbered=", "numbered=add:12").segments
    (('conv', 'add_13'),)
    """
    there, here = _numbers(_parts(of_plan)), _numbers(_parts(of_model))
    if remat.segments is None or there == here:
        return remat

    def name_here(name: str) -> str:
        return "/".join(_renumber(part, there, here) for part in name.split("/"))

    return Remat(segments=[[name_here(name) for name in segment] for segment in remat.segments])


def number_like(of_model: str, of_plan: str) -> str:
    """Return the digest of a model with the numbering of a plan's, from which its segments are renamed.

    >>> number_like("layers=3 sha256=b2 numbered=add:12", "layers=3 sha256=a1 numbered=add:4")
    'layers=3 sha256=b2 numbered=add:4'
    """
    parts = {name: value for name, value in _parts(of_model).items() if name != "numbered"}
    if numbered := _parts(of_plan).get("numbered"):
        parts["numbered"] = numbered
    return _join(parts)


def _call_names(model: Any) -> Iterator[str]:
    """Yield the names of all calls that a segment can begin or end with."""
    from fitroom.remat.graph import functional_of, layer_graph

    if functional_of(model) is not None:
        yield from (call.name for call in layer_graph(model).calls)


def _first_numbers(names: Iterator[str]) -> dict[str, int]:
    """Return the smallest number of each name. 0 stands for a name without a number and is left out."""
    first: dict[str, int] = {}
    for name in names:
        for part in name.split("/"):
            base, number, _ = _numbered(part)
            first[base] = min(number, first.get(base, number))
    return {base: number for base, number in first.items() if number}


def _renumber(part: str, there: dict[str, int], here: dict[str, int]) -> str:
    base, number, again = _numbered(part)
    renumbered = number - there.get(base, 0) + here.get(base, 0)
    return base + (f"_{renumbered}" if renumbered else "") + again


def _numbered(part: str) -> tuple[str, int, str]:
    found = _NUMBERED.fullmatch(part)
    assert found is not None, "every part of the pattern may be empty"
    return found["base"], int(found["number"] or 0), found["again"] or ""


def _join(parts: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in parts.items())


def _parts(digest: str) -> dict[str, str]:
    return {name: value for name, _, value in (part.partition("=") for part in digest.split())}


def _numbers(parts: dict[str, str]) -> dict[str, int]:
    pairs = (pair.rpartition(":") for pair in parts.get("numbered", "").split(",") if pair)
    return {base: int(number) for base, _, number in pairs}
