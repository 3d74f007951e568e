"""Asks the planner how to train: on a network with the layers of the one that will be trained."""

from dataclasses import dataclass, replace
from typing import Any

from fitroom.classify.choice import Choice
from fitroom.classify.compiling import compile_for
from fitroom.classify.machine import Machine, Say
from fitroom.classify.network import build_network, check_sizes
from fitroom.classify.options import AUTO, TrainOptions
from fitroom.classify.phases import Phase
from fitroom.classify.precision import Precision, choose_precision, freed_why
from fitroom.errors import FitroomError, NothingFitsError
from fitroom.keras_model.loading.source import ModelSource
from fitroom.planning.plan import plan
from fitroom.planning.result import Plan
from fitroom.recipe import Recipe, Remat


@dataclass(frozen=True, kw_only=True)
class Chooser:
    """What is to be trained, where, and what may be turned for it."""

    options: TrainOptions
    machine: Machine
    source: ModelSource
    """With the size of the pictures."""

    pictures: Any
    phase: Phase
    """The stretch that takes the most memory."""

    say: Say

    def choose(self) -> Choice:
        """The planner's choice; where none is needed or none can be made, what to begin with."""
        if self.options.may_resize:
            check_sizes(self.source)
        begin = f"{self.options.micro_batch} pictures at once" if self.options.micro_batch else "whole batches"
        if self.machine.budget is None:
            where = self.machine.where
            return self._unplanned(
                f"No estimate is needed, since memory has no limit on {where}: training begins with {begin}."
            )
        model = self._model(self.source.image_size or 0)
        try:
            found = self._plan(model)
        except NothingFitsError as error:
            return self._tried_all_the_same(error)
        except FitroomError as error:
            return self._unplanned(
                f"No plan could be made: {error.message} Training begins with {begin}, and goes on with less where "
                "memory runs out."
            )
        asked = f"{self.options.micro_batch} pictures at once were asked for. " if self.options.micro_batch else ""
        return self._chosen(found.recipe, asked + found.why, plan=found)

    @property
    def _frees_precision(self) -> bool:
        """A CPU computes best in float32, whatever card its memory is limited to."""
        return self.options.own_precision is None and self.machine.device.kind == "gpu"

    @property
    def _precision(self) -> Precision:
        """Where the planner has no say in it."""
        capability = self.machine.gpu.compute_capability if self.machine.gpu else None
        return choose_precision(self.options.own_precision or AUTO, self.machine.device, capability)

    def _plan(self, model: Any) -> Plan:
        options = self.options
        keeps_jit = options.jit is not None or self.machine.device.kind == "cpu"  # where Keras leaves XLA out
        return plan(
            model,
            options.batch_size,
            budget=self.machine.budget,
            gpu=self.machine.card,
            precision=AUTO if self._frees_precision else None,
            keep=(*options.keep, "jit") if keeps_jit else options.keep,
            allow=(*options.allow, "image-size") if options.may_resize else options.allow,
            prefer=options.prefer.replace("-", " "),
            input_dtype="uint8",
            micro_batch=options.micro_batch,
            rebuild=self._model,
            say=self.say,
        )

    def _model(self, image_size: int) -> Any:
        """In the precision that is settled, or else in float32; compiled."""
        precision = "float32" if self._frees_precision else self._precision.policy
        network = build_network(
            replace(self.source, image_size=image_size, precision=precision),
            num_classes=len(self.pictures.classes),
            weights=self.options.weights,
            values=False,
        )
        compile_for(self.phase, self.options, network, self.pictures)
        return network.model

    def _tried_all_the_same(self, error: NothingFitsError) -> Choice:
        """With the smallest recipe, since an estimate may be wrong and `fit` survives out-of-memory."""
        recipe = error.recipe or Recipe()
        if isinstance(recipe.remat, Remat):  # segments by the names of a network that is gone
            recipe = replace(recipe, remat="blocks")
        return self._chosen(recipe, f"{error.message} It is tried all the same, in this way ({error.hint}).")

    def _unplanned(self, why: str) -> Choice:
        return self._chosen(Recipe(micro_batch=self.options.micro_batch, jit=self.options.jit), why)

    def _chosen(self, recipe: Recipe, why: str, plan: Plan | None = None) -> Choice:
        precision = self._precision
        if self._frees_precision and recipe.precision:
            precision = Precision(policy=recipe.precision, why=freed_why(plan) if plan else "it takes the least memory")
        return Choice(
            precision=precision,
            image_size=recipe.image_size or self.source.image_size or 0,
            optimizer=recipe.optimizer or self.options.optimizer,
            frozen_layers=recipe.frozen_layers or self.phase.frozen_layers,
            recipe=recipe if plan else Recipe(micro_batch=recipe.micro_batch, jit=recipe.jit, remat=recipe.remat),
            plan=plan,
            why=why,
        )
