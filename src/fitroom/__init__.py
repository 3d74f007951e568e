"""fitroom: train any Keras model in the GPU memory you have."""

import importlib as _importlib
from typing import Any as _Any

from fitroom import data as data
from fitroom.budget import Budget as Budget
from fitroom.cards.catalogue import Card as Card
from fitroom.cards.catalogue import find_card as find_card
from fitroom.checks.doctor import doctor as doctor
from fitroom.checks.finding import Diagnosis as Diagnosis
from fitroom.checks.finding import Finding as Finding
from fitroom.errors import BackendError as BackendError
from fitroom.errors import CompilerError as CompilerError
from fitroom.errors import FitroomError as FitroomError
from fitroom.errors import HostMemoryError as HostMemoryError
from fitroom.errors import InputError as InputError
from fitroom.errors import MissingExtraError as MissingExtraError
from fitroom.errors import ModelError as ModelError
from fitroom.errors import NothingFitsError as NothingFitsError
from fitroom.errors import OutOfMemoryError as OutOfMemoryError
from fitroom.errors import PeerError as PeerError
from fitroom.errors import RunInterrupted as RunInterrupted
from fitroom.errors import StateLostError as StateLostError
from fitroom.errors import UnknownNameError as UnknownNameError
from fitroom.estimating.estimate import estimate as estimate
from fitroom.explaining.explain import explain as explain
from fitroom.explaining.explanation import Explanation as Explanation
from fitroom.keras_model.augmentation import Augmentation as Augmentation
from fitroom.keras_model.augmentation import move_augmentation as move_augmentation
from fitroom.keras_model.jit_choice import remember_choices as _remember_choices
from fitroom.loops.fresh import Round as Round
from fitroom.loops.fresh import fresh as fresh
from fitroom.loops.leaks import Leaks as Leaks
from fitroom.loops.leaks import leaks as leaks
from fitroom.loops.trials.run import trials as trials
from fitroom.loops.trials.table import Trial as Trial
from fitroom.loops.trials.table import Trials as Trials
from fitroom.loops.tuners.keras_tuner import isolate_tuner as isolate_tuner
from fitroom.loops.tuners.optuna import isolate_objective as isolate_objective
from fitroom.memory.estimate import Estimate as Estimate
from fitroom.memory.timeline import Timeline as Timeline
from fitroom.planning.freeze import freeze as freeze
from fitroom.planning.max_batch import MaxBatch as MaxBatch
from fitroom.planning.max_batch import max_batch as max_batch
from fitroom.planning.plan import plan as plan
from fitroom.planning.result import Plan as Plan
from fitroom.recipe import Recipe as Recipe
from fitroom.recipe import Remat as Remat
from fitroom.runs.run import Run as Run
from fitroom.runs.run import open_run as open_run
from fitroom.train.devices import devices as devices
from fitroom.train.fit import fit as fit
from fitroom.train.protect import protect as protect
from fitroom.train.step import Step as Step
from fitroom.version import __version__ as __version__
from fitroom.watching.watch import watch as watch

_remember_choices()


def __getattr__(name: str) -> _Any:
    """Import `fitroom.lean` when it is first used: it lies above packages that import this one."""
    if name == "lean":
        return _importlib.import_module("fitroom.lean")
    raise AttributeError(f"module 'fitroom' has no attribute {name!r}")
