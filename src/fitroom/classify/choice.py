"""How a training is carried out, precision, image size, optimizer and recipe: the planner is asked, with reasons."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fitroom.backends.choose import current_backend
from fitroom.backends.fused import leaves_kernels_to_keras
from fitroom.classify.machine import Machine, Say
from fitroom.classify.network import build_network, check_sizes
from fitroom.classify.options import AUTO, TrainOptions
from fitroom.classify.precision import Precision, choose_precision, explain_precision
from fitroom.errors import FitroomError, NothingFitsError
from fitroom.keras_model.loading.source import ModelSource
from fitroom.planning.identity import model_digest, number_like
from fitroom.planning.plan import plan
from fitroom.planning.result import Plan
from fitroom.recipe import Recipe, Remat
from fitroom.report.plan.words import format_recipe
from fitroom.runs.job import Job

if TYPE_CHECKING:
    from fitroom.classify.phases import Phase

_PLANNING_OPTIONS = ("budget", "gpu", "micro_batch", "keep", "allow", "prefer")
"""Options that the plan depends on and that may change when a run is resumed."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What was decided before training, and why."""

    precision: Precision
    image_size: int
    optimizer: str
    frozen_layers: int | None
    """How many of the first layers are not trained, where the plan says so."""

    recipe: Recipe
    """How a step is carried out: the plan's recipe, or the one to start with where there is no plan."""

    plan: Plan | None
    why: str
    """The reason, in whole sentences."""

    @classmethod
    def from_job(cls, job: Job) -> "Choice":
        """The choice that `to_job` has written to `job.json`, which `records.check_resumable` found whole."""
        plan = Plan.from_dict(job.plan) if job.plan else None
        started_with = {name: job.values["recipe"].get(name) for name in ("micro_batch", "jit", "remat", "kernels")}
        return cls(
            precision=Precision.from_job(job),
            image_size=job.image_size or 0,
            optimizer=job.optimizer or "",
            frozen_layers=job.frozen_layers,
            recipe=plan.recipe if plan else Recipe(**started_with),
            plan=plan,
            why=job.recipe_why or "",
        )

    def to_job(self, batch_size: int) -> dict[str, Any]:
        """The fields of `job.json` for this choice."""
        micro_batch = self.recipe.micro_batch
        recipe = {
            "batch_size": batch_size,
            "micro_batch": None if micro_batch is None or micro_batch >= batch_size else micro_batch,
            "precision": self.precision.policy,
            "jit": self.recipe.jit,
            "remat": self.recipe.to_dict().get("remat"),
            "kernels": self.recipe.kernels,
        }
        return {
            "precision": self.precision.to_dict(),
            "image_size": self.image_size,
            "optimizer": self.optimizer,
            "frozen_layers": self.frozen_layers,
            "recipe": recipe,
            "recipe_why": self.why,
            "plan": self.plan.to_dict() if self.plan else None,
        }

    def plan_for(self, model: Any) -> Plan | None:
        """The plan as one for `model`, in all phases, each of which trains other layers.

        The model that was planned with is another one with the same layers, which Keras has numbered differently: `fit`
        renames the segments.
        """
        if self.plan is None:
            return None
        return replace(self.plan, model_digest=number_like(model_digest(model), self.plan.model_digest))

    def lines(self, options: TrainOptions, own_size: int) -> Iterator[str]:
        """Lines for people: what was chosen, why, and how it affects the result."""
        yield f"precision: {self.precision.policy} ({self.precision.why})"
        if self.plan is None:
            yield self.why
        else:
            how = format_recipe(self.recipe, self.plan.batch_size)
            yield f"plan: {how}"
            yield f"why: {self.why}"
            seen_by = {"batch statistics": "BatchNormalization sees "}
            changed = [
                f"{one.effect} ({seen_by.get(one.effect, '')}{one.after} in place of {one.before})"
                for one in self.plan.changes
            ]
            said = [words for words in changed if not words.startswith("nothing")]
            yield f"effect on the result: {', '.join(said) or 'nothing'}"
        if self.image_size != own_size:
            sizes = f"{self.image_size} x {self.image_size} in place of {own_size} x {own_size}"
            yield f"image size: {sizes}, as allowed, because nothing else fits"
        elif options.may_resize:
            yield f"image size: {own_size} x {own_size}, unchanged"
        if self.optimizer != options.optimizer:
            yield f"optimizer: {self.optimizer} in place of {options.optimizer}, as allowed, because it has less state"
        if self.frozen_layers:
            yield f"frozen: the first {self.frozen_layers} layers with weights are not trained, as allowed"


def has_same_request(options: TrainOptions, job: Job) -> bool:
    """Whether a run is resumed with the same memory and knobs as before, so that its plan still holds."""
    before, now = TrainOptions(**job.options), options
    return all(getattr(before, name) == getattr(now, name) for name in _PLANNING_OPTIONS)


@dataclass(frozen=True, kw_only=True)
class Chooser:
    """Asks the planner how to train, with a network that has the layers of the one to be trained."""

    options: TrainOptions
    machine: Machine
    source: ModelSource
    """The model, with the image size."""

    images: Any
    phase: "Phase"
    """The phase that takes the most memory."""

    say: Say

    def choose(self) -> Choice:
        """The planner's choice; where no plan is needed or none can be made, the recipe to start with."""
        if self.options.may_resize:
            check_sizes(self.source)
        start = f"micro-batch {self.options.micro_batch}" if self.options.micro_batch else "whole batches"
        if self.machine.budget is None:
            where = self.machine.where
            return self._choose_unplanned(
                f"No estimate is needed, because memory has no limit on {where}: training starts with {start}."
            )
        model = self._build_model(self.source.image_size or 0)
        try:
            found = self._plan(model)
        except NothingFitsError as error:
            return self._choose_smallest(error)
        except FitroomError as error:
            return self._choose_unplanned(
                f"No plan could be made: {error.message} Training starts with {start}, and with a smaller micro-batch "
                "where memory runs out."
            )
        asked = f"Micro-batch {self.options.micro_batch} was asked for. " if self.options.micro_batch else ""
        return self._make_choice(found.recipe, asked + found.why, plan=found)

    @property
    def _may_choose_precision(self) -> bool:
        """Whether the planner may choose the precision: not on a CPU, which is fastest in float32."""
        return self.options.own_precision is None and self.machine.device.kind == "gpu"

    @property
    def _precision(self) -> Precision:
        """The precision where the planner does not choose it."""
        capability = self.machine.gpu.compute_capability if self.machine.gpu else None
        return choose_precision(self.options.own_precision or AUTO, self.machine.device, capability)

    def _plan(self, model: Any) -> Plan:
        options = self.options
        keeps_jit = options.jit is not None or self.machine.device.kind == "cpu"  # Keras does not use XLA there
        kept = [*(["jit"] if keeps_jit else []), *(["kernels"] if leaves_kernels_to_keras(current_backend()) else [])]
        return plan(
            model,
            options.batch_size,
            budget=self.machine.budget,
            gpu=self.machine.card,
            precision=AUTO if self._may_choose_precision else None,
            keep=(*options.keep, *kept),
            allow=(*options.allow, "image-size") if options.may_resize else options.allow,
            prefer=options.prefer.replace("-", " "),
            input_dtype="uint8",
            micro_batch=options.micro_batch,
            rebuild=self._build_model,
            say=self.say,
        )

    def _build_model(self, image_size: int) -> Any:
        """The model to plan with, compiled; in float32 where the planner chooses the precision."""
        from fitroom.classify.compiling import compile_for

        precision = "float32" if self._may_choose_precision else self._precision.policy
        network = build_network(
            replace(self.source, image_size=image_size, precision=precision),
            num_classes=len(self.images.classes),
            weights=self.options.weights,
            values=False,
        )
        compile_for(self.phase, self.options, network, self.images)
        return network.model

    def _choose_smallest(self, error: NothingFitsError) -> Choice:
        """The smallest recipe, although predicted not to fit: an estimate may be wrong, and `fit` survives that."""
        recipe = error.recipe or Recipe()
        if isinstance(recipe.remat, Remat):  # its segments have the layer names of another network
            recipe = replace(recipe, remat="blocks")
        return self._make_choice(
            recipe, f"{error.message} Training tries the smallest recipe all the same ({error.hint})."
        )

    def _choose_unplanned(self, why: str) -> Choice:
        return self._make_choice(Recipe(micro_batch=self.options.micro_batch, jit=self.options.jit), why)

    def _make_choice(self, recipe: Recipe, why: str, plan: Plan | None = None) -> Choice:
        precision = self._precision
        if self._may_choose_precision and recipe.precision:
            precision = Precision(
                policy=recipe.precision, why=explain_precision(plan) if plan else "it takes the least memory"
            )
        return Choice(
            precision=precision,
            image_size=recipe.image_size or self.source.image_size or 0,
            optimizer=recipe.optimizer or self.options.optimizer,
            frozen_layers=recipe.frozen_layers or self.phase.frozen_layers,
            recipe=recipe
            if plan
            else Recipe(micro_batch=recipe.micro_batch, jit=recipe.jit, remat=recipe.remat, kernels=recipe.kernels),
            plan=plan,
            why=why,
        )
