"""Training steps on JAX: each is a function of the state, compiled whole, and takes effect when all of it is done."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import keras
import numpy as np

from fitroom.backends.jax.jit import fitroom_jits, jit_note
from fitroom.backends.jax.train.distribute import SPREAD_MODELS, check_is_ours
from fitroom.backends.jax.train.micro_batches import MicroBatchStep, has_sparse
from fitroom.backends.jax.train.programs import Programs, cached_programs
from fitroom.backends.jax.train.recompute import recompute_segment
from fitroom.backends.jax.train.room import has_free, has_room, is_fragmented
from fitroom.backends.jax.train.spread import Spread, current_spread
from fitroom.backends.jax.train.spread_micro_batches import SpreadMicroBatchStep
from fitroom.backends.jax.train.state import (
    Groups,
    StepFunction,
    check_has_values,
    defragment,
    is_lost,
    read,
    reverse_groups,
    variables_of,
    with_reversed_state,
    write,
)
from fitroom.backends.jax.train.transfer import Transfer
from fitroom.backends.signals import defer_signals
from fitroom.batch import Batch, StepName, micro_batch_sizes
from fitroom.errors import StateLostError
from fitroom.keras_model.build import build
from fitroom.keras_model.objective import Objective
from fitroom.keras_model.outputs import join, join_micro_batches
from fitroom.keras_model.recompute import Rematerialisation
from fitroom.recipe import Remat

MOST_UNROLLED = 16
"""The most micro-batches that stand one after another in a program for the CPU. Within a loop XLA has only its slowest
convolution for it, 25 times slower; more micro-batches than these would take too long to compile."""


class JaxStepper:
    """Steps of one compiled model. Whole batches run through the model's own `train_step` and `test_step`."""

    batches_ahead = 2
    """On the host. On the card is at most the next batch, which `transfer.py` copies while one is trained on."""

    def __init__(self, model: Any, *, jit: bool | None, remat: str | Remat | None = None) -> None:
        self.model = model
        self._rematerialisation = Rematerialisation(model, remat, recompute_segment)
        self.objective = Objective(model)
        self._jit = jit
        self._is_sparse = False
        self._variables: Groups = ()
        self._programs = Programs()
        self._transfer = Transfer()
        self._under_way: Any = None
        """Results of the last step, where nobody has waited for them yet."""
        self._cuts: dict[tuple[str, int, int], MicroBatchStep] = {}
        self.compiled_peak_bytes: int | None = None
        """What the last step took as XLA laid it out, in place of an allocator's peak, which JAX cannot reset."""
        self._spread: Spread | None = None
        """How state and batches lie on several devices; None on one."""

    def why_whole(self, step: StepName = "train_step") -> str | None:
        """Why this step must take its batches whole, or None where micro-batches are possible, as far as is known."""
        return "its tensors are sparse" if self._is_sparse else self.objective.why_whole(step)

    @property
    def note(self) -> str | None:
        """What a step does differently from Keras's, for the user; None where it does the same."""
        return jit_note(self.model) if self._jit else None

    def trust(self, samples: int) -> None:
        """Nothing to skip: a step is compiled before it runs, and the compiler says what it takes."""

    def prepare(self, batch: Batch) -> None:
        """Make weights, variables of the optimizer and of metrics, as Keras does with its first batch."""
        if not self._variables:
            check_has_values(self.model)
            self._is_sparse = has_sparse(batch.unpacked())
            build(self.model, batch)
            if self._jit is None:
                self._jit = fitroom_jits(self.model)
            self._variables = variables_of(self.model)
            self._programs = cached_programs(self.model)
            self._spread_out()

    def samples_per_device(self, batch_size: int) -> int:
        """The most samples of a batch that one device gets: its share, or what is left over and replicated."""
        spread = current_spread()
        if spread is None:
            return batch_size
        share, rest = divmod(batch_size, spread.num_shares)
        return batch_size if rest and self.why_whole() is not None else max(share, rest)

    def train(self, batch: Batch, micro_batch: int) -> dict[str, Any]:
        """One update."""
        self.prepare(batch)
        cut = self._cut(batch, micro_batch, "train_step")
        step = self._rematerialisation.of_step(
            cut.train if cut else self.model.train_step, max(cut.sizes) if cut else self.samples_per_device(batch.size)
        )
        name = ("train", cut and cut.kind, self._rematerialisation.remat)
        variables = reverse_groups(self._variables)
        return self._run(name, with_reversed_state(step), variables, batch, is_cut=cut is not None, donated=True)

    def test(self, batch: Batch, micro_batch: int) -> dict[str, Any]:
        """One batch of `evaluate`."""
        self.prepare(batch)
        cut = self._cut(batch, micro_batch, "test_step")
        step = cut.test if cut else self.model.test_step
        trainable, non_trainable, _, metrics = self._variables
        # So little is new here that nothing has to be given up for it.
        variables, name = (trainable, non_trainable, metrics), ("test", cut and cut.kind)
        return self._run(name, _changes(step), variables, batch, is_cut=cut is not None, donated=False)

    def predict(self, x: Any) -> Any:
        """The model's outputs for some inputs."""
        state = read((self.model.trainable_variables, self.model.non_trainable_variables))
        outputs, _ = self._outputs(state, Batch(x=x))
        return outputs

    def predict_batch(self, batch: Batch, micro_batch: int) -> Any:
        """One batch of `predict`."""
        if not all(layer.built for layer in self.model._flatten_layers()):
            with keras.StatelessScope():
                self.model(batch.slice(0, 1).x)
        if not self._variables:  # nothing was trained or evaluated by this stepper
            self._programs = cached_programs(self.model)
            self._spread = current_spread()
        variables = (self.model.trainable_variables, self.model.non_trainable_variables)
        state, found = read(variables), []
        parts = batch.micro_batches(micro_batch)
        for part in parts:
            outputs, non_trainable = self._outputs(state, part)
            found.append(outputs)
            state = (state[0], list(non_trainable))
        with defer_signals():
            write(variables[1:], state[1:])
        return join_micro_batches(found, [part.size for part in parts])

    def _outputs(self, state: Any, batch: Batch) -> tuple[Any, Any]:
        """The outputs of `predict_step` for a state, on the host, and the variables that it changed."""
        if self._jit is None:
            self._jit = fitroom_jits(self.model)
        data = self._put_whole(batch).data()
        step = self.model.predict_step
        if self._jit:
            step = self._programs.get(("predict", self._spread and self._spread.key), step, state, data)
        outputs, non_trainable = step(state, data)
        return jax.tree.map(np.asarray, outputs), non_trainable

    def join(self, outputs: Sequence[Any]) -> Any:
        """The outputs of several batches of `predict`."""
        return join(outputs)

    def prefetch(self, batch: Batch) -> Batch:
        """Note which batch follows, and return it as it is: its transfer begins with the step before it."""
        self._transfer.queue.add(batch)
        return batch

    def pause(self) -> None:
        """Free what was prefetched to the card: no batch follows for now."""
        self._transfer.end()

    def forget(self) -> None:
        """Wait for what is under way. Compiled programs stay: they hold no gradients, and compiling takes a minute."""
        self._settle()
        self._transfer.drop()

    def _cut(self, batch: Batch, micro_batch: int, of: StepName) -> MicroBatchStep | None:
        """The step in micro-batches, or None for a batch that stays whole."""
        is_even = self._spread is None or batch.size % self._spread.num_shares == 0
        if micro_batch >= self.samples_per_device(batch.size) and (is_even or self.why_whole(of) is not None):
            return None
        key = (of, batch.size, micro_batch)
        if key not in self._cuts:
            self.objective.check_can_cut(of)
            self.objective.try_losses(batch, self.predict)
            self._cuts[key] = self._make_cut(batch.size, micro_batch)
        return self._cuts[key]

    def _make_cut(self, batch_size: int, micro_batch: int) -> MicroBatchStep:
        sizes = micro_batch_sizes(self.samples_per_device(batch_size), micro_batch)
        unrolled = jax.default_backend() == "cpu" and len(sizes) <= MOST_UNROLLED
        looped = bool(self._jit) and not unrolled
        if self._spread is None:
            return MicroBatchStep(self.model, self.objective, sizes, looped=looped)
        return SpreadMicroBatchStep(self.model, self.objective, self._spread, batch_size, micro_batch, looped=looped)

    def _spread_out(self) -> None:
        """Lay out variables and batches as the distribution in force says."""
        spread = self._spread = current_spread()
        if spread is not None:
            check_is_ours()
            SPREAD_MODELS.add(self.model)
            spread.place(self._variables)
            self._transfer.put = lambda batch: spread.put(batch, can_cut=self.why_whole() is None)

    def _put_whole(self, batch: Batch) -> Any:
        return batch.map(jax.device_put) if self._spread is None else self._spread.put(batch, can_cut=False)

    def _run(
        self, name: Any, step: StepFunction, variables: Groups, batch: Batch, *, is_cut: bool, donated: bool
    ) -> dict[str, Any]:
        on_device = self._transfer.take(batch)
        if (spread := self._spread) is not None:
            if batch.size % spread.num_shares and is_cut != (self.why_whole() is None):
                on_device = spread.put(batch, can_cut=is_cut)  # it was laid out for a step of another kind
            step, name = spread.constrain(step, variables), (name, spread.key)
        state, data = read(variables), on_device.unpacked() if is_cut else on_device.data()
        with self._clean_up_failed_trace():
            if not self._jit:
                logs, new_state = jax.block_until_ready(step(state, data))
                with defer_signals():
                    write(variables, new_state)
                return dict(logs)
            program = self._programs.get(name, step, state, data, donated=donated)
            self.compiled_peak_bytes = program.peak_bytes
        with defer_signals():
            # A program that ran once will run again, so the host may prepare the next step while it does. Room is
            # looked for first, and where the step under way takes it, once more when that is done.
            ahead = program.overlaps and donated
            needed_bytes = program.needed_bytes or 0
            if not (ahead and has_room(needed_bytes) and has_free(needed_bytes + self._transfer.next_bytes)):
                self._settle()
            if is_fragmented(needed_bytes):
                self._settle()
                del state  # nobody may hold the arrays while they are moved
                defragment(self._variables)
                state = read(variables)
            self._transfer.prefetch_next(needed_bytes)
            try:
                logs, new_state = program(state, data)
                # What fails on the device is told to whoever waits for a result. All come from one program: a few do.
                if not ahead:
                    jax.block_until_ready((logs, [group[:1] for group in new_state]))
            except Exception as error:
                if is_lost(state):
                    raise _state_lost(error) from error
                raise
            program.overlaps = program.needed_bytes is not None and has_free(0)  # where memory is counted
            write(variables, new_state)
            if ahead:
                # The logs: the next step gives up the state.
                before, self._under_way = self._under_way, logs
                _wait_for(before)
        return dict(logs)

    def _settle(self) -> None:
        """Wait for the step under way."""
        before, self._under_way = self._under_way, None
        _wait_for(before)

    @contextlib.contextmanager
    def _clean_up_failed_trace(self) -> Iterator[None]:
        """Remove what Keras leaves in the model when a trace is broken off."""
        try:
            yield
        except BaseException:
            # The losses of the broken trace, which would stand for the model's from now on.
            self.model._losses_override = []
            raise


def _wait_for(results: Any) -> None:
    try:
        jax.block_until_ready(results)
    except Exception as error:
        raise _state_lost(error) from error


def _state_lost(error: Exception) -> StateLostError:
    return StateLostError(
        f"The step failed on the device when it had given up the model's variables: {error}",
        hint="resume from the last checkpoint: `fitroom.fit(..., run_dir=...)` writes them",
    )


def _changes(step: StepFunction) -> StepFunction:
    """The step with None in its new state for all that stays as it was."""

    def changes(state: Any, data: Any) -> tuple[Any, Any]:
        logs, new_state = step(state, data)
        pairs = zip(state, new_state, strict=True)
        return logs, [[None if b is a else b for a, b in zip(*groups, strict=True)] for groups in pairs]

    return changes
