"""TensorFlow's jitted step compiled for a card, and the answer kept."""

import json
import tempfile
from pathlib import Path

from fitroom.backends.tensorflow.trace.jitted.attribution import TensorFlowScopes
from fitroom.backends.tensorflow.trace.jitted.hlo import lower_step, normalise_program
from fitroom.backends.tensorflow.trace.jitted.library import tensorflow_version
from fitroom.backends.tensorflow.trace.jitted.parameters import arguments_of
from fitroom.backends.tensorflow.trace.step import TensorFlowStep
from fitroom.backends.xla.dump import read_dump
from fitroom.backends.xla.library import CompilerLibrary
from fitroom.backends.xla.on_card import added_on_card
from fitroom.backends.xla.process import run_compiler
from fitroom.backends.xla.timeline import timeline_of
from fitroom.cards.catalogue import Card
from fitroom.cards.overhead import visible_bytes
from fitroom.cards.targets import target_description
from fitroom.memory import cache
from fitroom.memory.timeline import Timeline

_FORMAT = "8"
"""Raised when what is read from a dump changes, so that older entries of the cache are not found."""


def compile_timeline(step: TensorFlowStep, card: Card, library: CompilerLibrary) -> Timeline:
    """The step's memory as XLA lays it out for the card.

    The allocator's limit plays no part: TensorFlow does not tell XLA of it, which goes by the card's whole memory.
    """
    program = normalise_program(lower_step(step))
    target = target_description(card, _limit_of_xla(card))
    names = json.dumps([sorted(step.layer_names), [(found.kind, found.layer) for found in step.variables]])
    key = cache.digest("tensorflow step", _FORMAT, str(library), tensorflow_version(), target, names, program)
    try:
        return Timeline.from_dict(cache.load(key))
    except (KeyError, TypeError, ValueError):
        pass  # not there, or not as we write it
    timeline = _compile(program, target, step, card, library)
    cache.store(key, timeline.to_dict())
    return timeline


def _limit_of_xla(card: Card) -> int:
    """How much a step may take before XLA recomputes: 80 % of the card where nobody names a limit."""
    return visible_bytes(card.memory_bytes) * 80 // 100


def _compile(program: bytes, target: str, step: TensorFlowStep, card: Card, library: CompilerLibrary) -> Timeline:
    with tempfile.TemporaryDirectory(prefix="fitroom-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "step").write_bytes(program)
        (folder / "target").write_text(target)
        (folder / "dump").mkdir()
        run_compiler(
            "fitroom.backends.xla.child",
            [str(library.path), "hlo", *(str(folder / name) for name in ("step", "target", "dump"))],
            folder,
            card=card,
            compiler=str(library),
            settings={},
        )
        dump = read_dump(folder / "dump")
        return timeline_of(dump, arguments_of(step, dump), TensorFlowScopes(step), added_on_card(dump, card))
