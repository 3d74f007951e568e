"""One call of `fit`: model, data, recipe and run folder are put together, then the loop runs."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fitroom.backends.choose import current_backend
from fitroom.backends.fused import check_attention_dropout, check_fused, leaves_kernels_to_keras, takes_fused
from fitroom.batch import Batch
from fitroom.budget import Budget
from fitroom.checks.device_note import device_note_once
from fitroom.distribution.busy import busy_notes
from fitroom.distribution.current import Distribution, current_distribution, describe
from fitroom.distribution.shares import check_batch
from fitroom.errors import InputError, ModelError
from fitroom.events import EventKind, Events
from fitroom.input_sizes import InputShape
from fitroom.inputs import Source, orders_batches, source_of, split_validation, unpack
from fitroom.inputs.arrays import ArraySource
from fitroom.keras_model.input_batch import describe_open_dimensions
from fitroom.keras_model.layers import precision_of
from fitroom.keras_model.precision import in_precision
from fitroom.keras_model.state import has_batch_statistics, needs_batch_to_build
from fitroom.planning.result import Plan
from fitroom.recipe import Recipe, Remat, recipe_of
from fitroom.runs.writer import Cadence
from fitroom.train.checkpointer import Checkpointer
from fitroom.train.earlier_models import note_model
from fitroom.train.first_steps import FirstSteps
from fitroom.train.followers import callbacks_of_follower, own_run_folder
from fitroom.train.keras_settings import callback_list, limit_epochs, limit_steps
from fitroom.train.leftovers import free_last_error
from fitroom.train.loop import Loop, Validation
from fitroom.train.open_run import OpenRun, open_run_folder
from fitroom.train.planned import KNOBS_OF_FIT, check_batches, load_plan, recipes_of, sample_shapes
from fitroom.train.transaction import Transaction, prepare
from fitroom.train.whole_batches import list_offers, remat_fallback


@dataclass(frozen=True, kw_only=True)
class Data:
    """The data to train and validate on, as they were given to `fit`."""

    x: Any
    y: Any
    sample_weight: Any
    batch_size: int | None
    shuffle: Any
    class_weight: dict[int, float] | None
    steps_per_epoch: int | None
    validation_split: float
    validation_data: Any
    validation_steps: int | None
    validation_batch_size: int | None
    validation_frequency: Any

    def sources(self, seed: int, steps_per_execution: int) -> tuple[Source, Validation | None]:
        """Make the source of training, and that of validation where it was asked for."""
        x, y, sample_weight, held_out = self.x, self.y, self.sample_weight, self.validation_data
        if self.validation_split and held_out is None:
            (x, y, sample_weight), held_out = split_validation(x, y, sample_weight, self.validation_split)
        source = source_of(
            x,
            y,
            sample_weight,
            batch_size=self.batch_size,
            shuffle=self.shuffle,
            class_weight=self.class_weight,
            steps_per_epoch=limit_steps(self.steps_per_epoch),
            steps_per_execution=steps_per_execution,
            seed=seed,
        )
        if held_out is None:
            return source, None
        of_validation = source_of(
            *unpack(held_out),
            batch_size=self.validation_batch_size or self.batch_size,
            shuffle=False,
            steps_per_epoch=limit_steps(self.validation_steps),
            steps_per_execution=steps_per_execution,
            seed=seed,
        )
        return source, Validation(source=of_validation, frequency=self.validation_frequency)


@dataclass(frozen=True, kw_only=True)
class Training:
    """The arguments of `fit`."""

    model: Any
    data: Data
    recipe: Recipe | None
    plan: Plan | str | Path | None
    budget: Budget | int | str | None
    run_dir: str | Path | None
    seed: int | None
    checkpoint_seconds: float
    checkpoint_batches: int | None
    input_shape: InputShape | None = None

    def run(self, *, epochs: int, initial_epoch: int, verbose: Any, callbacks: Any) -> Any:
        """Train, and return Keras's History."""
        epochs = limit_epochs(epochs)
        check_model(self.model)
        check_one_of(recipe=self.recipe, plan=self.plan, budget=self.budget)
        _check_recipe(recipe_of(self.recipe))
        events = Events()
        distribution = current_distribution()
        if distribution is not None and not distribution.is_first_process:
            verbose, callbacks = 0, callbacks_of_follower(callbacks)
        with ExitStack() as stack:
            run = None if self.run_dir is None else stack.enter_context(self._open_run_folder(self.run_dir, events))
            seed = _seed_of(self.seed, run, shuffles=bool(self.data.shuffle) and orders_batches(self.data.x))
            if distribution is not None:
                seed = distribution.share(seed)
            source, validation = self.data.sources(seed, self.model.steps_per_execution)
            if needs_batch_to_build(self.model):
                source.look()
            plan = self._plan(source, run)
            recipes = self._recipes(plan, source)
            with in_precision(self.model, recipes[0].precision):
                whole = plan.batch_size if plan else None
                transaction = build_transaction(self.model, recipes, events, whole=whole)
                transaction.prepare(source.peek())
                note_model(self.model, events)
                if note := getattr(transaction.stepper, "note", None):
                    events.tell(EventKind.JIT, note)
                if distribution is not None and distribution.num_devices > 1:
                    check_batch(source.peek().size, distribution.num_devices)
                    said = describe(distribution, source.peek().size, batch_statistics=has_batch_statistics(self.model))
                    events.tell(EventKind.DEVICES, said, devices=list(distribution.devices))
                    for note in busy_notes(distribution.devices):
                        events.tell(EventKind.DEVICES, note)
                known = callback_list(
                    callbacks,
                    self.model,
                    verbose=verbose,
                    epochs=epochs,
                    steps=self.data.steps_per_epoch or source.num_batches,
                    add_history=True,
                )
                for callback in known.callbacks:
                    if hasattr(callback, "set_sizing"):  # like Keras's `set_model`: callbacks may show the micro-batch
                        callback.set_sizing(transaction.training)
                if plan is not None:
                    transaction.first_steps = FirstSteps(plan, self.model, transaction.backend, events)
                checkpointer = run and run.begin(
                    model=self.model,
                    source=source,
                    transaction=transaction,
                    callbacks=known,
                    epochs=epochs,
                    seed=seed,
                    recipe=recipes[0],
                    plan=plan,
                    budget=self._budget,
                )
                if checkpointer and checkpointer.is_finished:
                    checkpointer.restore_finished()
                else:
                    if plan and self.budget is not None:
                        events.tell(EventKind.PLAN, plan.why)
                        if self.input_shape is None and not isinstance(source, ArraySource):
                            for note in describe_open_dimensions(self.model, self._input_shape(source.peek())):
                                events.tell(EventKind.PLAN, note + " Where samples may be larger, give `input_shape`.")
                    Loop(
                        model=self.model,
                        source=source,
                        transaction=transaction,
                        callbacks=known,
                        epochs=epochs,
                        initial_epoch=initial_epoch,
                        validation=validation,
                        checkpointer=checkpointer or Checkpointer(),
                        events=events,
                    ).run()
            if checkpointer:
                checkpointer.finish()
        history = self.model.history
        recipe = transaction.training.recipe
        history.fitroom = {
            "micro_batch": recipe.micro_batch,
            "validation_micro_batch": transaction.testing.recipe.micro_batch,
            "recipe": recipe.to_dict(),
            "plan": plan.to_dict() if plan else None,
            "out_of_memory": transaction.out_of_memory_count,
            "devices": None if distribution is None else list(distribution.devices),
            "events": events.happened,
            "run_dir": None if self.run_dir is None else str(self.run_dir),
        }
        return history

    @property
    def _budget(self) -> Any:
        """The budget that was asked for, as JSON."""
        return asdict(self.budget) if isinstance(self.budget, Budget) else self.budget

    def _plan(self, source: Source, run: OpenRun | None) -> Plan | None:
        """The plan that was given, or one made for the budget: once in a run, since another search may find another."""
        if self.plan is not None:
            return load_plan(self.plan)
        if self.budget is None:
            return None
        plan = run.plan_for(self._budget) if run else None
        if plan is None:
            from fitroom.planning.plan import plan as find_plan

            _build(self.model, source)
            first = source.peek()
            keep = ("kernels",) if leaves_kernels_to_keras(current_backend()) else ()
            shape = self._input_shape(first)
            plan = find_plan(self.model, first.size, budget=self.budget, keep=keep, input_shape=shape)
        return plan

    def _input_shape(self, first: Batch) -> InputShape:
        """The input shape to plan for: as given, or that of the first batch."""
        return sample_shapes(first) if self.input_shape is None else self.input_shape

    def _recipes(self, plan: Plan | None, source: Source) -> tuple[Recipe, ...]:
        """The recipe to start with, then those for when memory runs out."""
        first = source.peek()
        if plan is not None:
            _build(self.model, source)
            recipes = recipes_of(plan, self.model)
            check_batches(plan, first, plan.batch_size if plan.batch_size == source.batch_size else first.size)
            return recipes
        recipe = recipe_of(self.recipe)
        if recipe.precision is not None:
            _build(self.model, source)
        recipe = _with_segments(self.model, recipe, first.size, self._input_shape(first))
        return (recipe, *fused_fallback(self.model, recipe))

    def _open_run_folder(self, run_dir: str | Path, events: Events) -> AbstractContextManager[OpenRun]:
        cadence = Cadence(every_batches=self.checkpoint_batches, every_seconds=self.checkpoint_seconds)
        distribution = current_distribution()
        if distribution is None or distribution.num_processes == 1:
            return open_run_folder(run_dir, events, cadence)
        return _open_shared_folder(run_dir, events, cadence, distribution)


@contextmanager
def _open_shared_folder(
    run_dir: str | Path, events: Events, cadence: Cadence, distribution: Distribution
) -> Iterator[OpenRun]:
    """A run folder in which only the first of several processes writes."""
    with own_run_folder(run_dir, distribution) as own:
        follows = None if distribution.is_first_process else Path(run_dir).expanduser()
        with open_run_folder(own, events, cadence, follows=follows) as run:
            yield run


def build_transaction(
    model: Any, recipes: Sequence[Recipe], events: Events | None = None, *, whole: int | None = None
) -> Transaction:
    """Build the transaction of a model, which starts with the first of `recipes`.

    `whole` is the size of a plan's batches; the first recipe was then estimated for exactly these.
    """
    backend = current_backend()
    free_last_error(backend)
    events = events or Events()
    if note := device_note_once(backend):
        events.tell(EventKind.DEVICE, note)
    transaction = Transaction(
        backend,
        lambda recipe: backend.stepper(
            model,
            jit=recipe.jit,
            remat=recipe.remat,
            kernels=recipe.kernels,
            attention_dropout=recipe.attention_dropout,
        ),
        events,
        recipes=recipes,
        whole=whole,
        batch_statistics=lambda: has_batch_statistics(model),
        whole_fallbacks=partial(remat_fallback, model),
        whole_offers=partial(list_offers, model),
    )
    if whole is not None:
        transaction.stepper.trust(recipes[0].samples_at_once(whole))
    return transaction


def check_model(model: Any) -> None:
    """Raise ModelError for what is no compiled Keras model."""
    import keras

    if not isinstance(model, keras.Model):
        raise ModelError(
            f"The model must be a `keras.Model`. Received: {model!r} of type {type(model).__name__}.",
            hint="fitroom.fit(model, x, y, ...) in place of model.fit(x, y, ...)",
        )
    if not model.compiled:
        raise ModelError(
            f"The model {model.name!r} is not compiled.", hint="call model.compile(optimizer, loss) first, as for fit"
        )


def check_one_of(**ways: Any) -> None:
    """Raise InputError where more than one of the arguments was given."""
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        names = ", ".join(f"`{name}`" for name in ways)
        raise InputError(
            f"At most one of {names} says how to train. Received: {' and '.join(given)}.",
            hint="a plan has a recipe and a budget of its own: leave the others out",
        )


def fused_fallback(model: Any, recipe: Recipe) -> tuple[Recipe, ...]:
    """The recipe to try first when memory runs out: the same with fused kernels, where there are any for the model.

    Raises InputError where fused kernels are asked for and the framework has none.
    """
    backend, jit = current_backend(), bool(model.jit_compile if recipe.jit is None else recipe.jit)
    if recipe.kernels == "fused":
        check_fused(backend, model, jit=jit)
    if recipe.attention_dropout == "fused":
        check_attention_dropout(backend, model)
    is_open = (
        recipe.kernels is None
        and not leaves_kernels_to_keras(backend)
        and takes_fused(backend, model, recipe.precision or precision_of(model), jit=jit)
    )
    return (replace(recipe, kernels="fused"),) if is_open else ()


def _build(model: Any, source: Source) -> None:
    """Build the layers of a model that has not seen a batch yet, in its own precision."""
    if not all(layer.built for layer in model._flatten_layers()):
        backend = current_backend()
        prepare(backend, backend.stepper(model, jit=None), source.peek())


def _check_recipe(recipe: Recipe) -> None:
    others = [name for name in recipe.to_dict() if name not in KNOBS_OF_FIT]
    if others:
        raise InputError(
            f"`fit` takes {', '.join(KNOBS_OF_FIT)} of a recipe. Received also: {', '.join(others)}.",
            hint="build and compile the model with the optimizer and the input it is to have",
        )


def _with_segments(model: Any, recipe: Recipe, batch_size: int, input_shape: InputShape) -> Recipe:
    """Replace the budget of a remat by the segments that `estimate` finds for it."""
    if not isinstance(recipe.remat, Remat) or recipe.remat.budget is None:
        return recipe
    from fitroom.estimating.estimate import estimate

    return estimate(model, batch_size, recipe=recipe, input_shape=input_shape).recipe


def _seed_of(asked: int | None, run: OpenRun | None, *, shuffles: bool) -> int:
    """The seed of the order: the run's own where it is resumed, or as asked for, or drawn from NumPy's generator.

    A script that seeds NumPy gets the same order each time. Where nothing is shuffled, the generator is left as it was:
    the data may be drawn from it.
    """
    import numpy as np

    before = np.random.get_state(legacy=False)
    drawn = int(np.random.randint(2**31)) if asked is None else asked
    if not shuffles:
        np.random.set_state(before)
    return drawn if run is None or run.seed is None else run.seed
