"""Updates of weights and optimizer that can be rolled back until the step is done.

Keras's optimizers on PyTorch change weights and slots in place, one after the other. So they are copied just before,
when the activations are freed and their memory is there. A card that has no room for the copies does without: the
update is then as safe as in Keras's own `fit`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fitroom.backends.signals import defer_signals
from fitroom.backends.torch.out_of_memory import is_out_of_memory
from fitroom.backends.torch.train.snapshot import Snapshot

_Apply = Callable[..., Any]


class Updates:
    """Makes the updates of one step undoable, whoever calls for them: Keras's `train_step`, a user's own, or ours."""

    def __init__(self) -> None:
        self._versions: list[tuple[Any, int]] = []
        """Tensors with PyTorch's count of their changes, by which changes without a copy are noticed."""
        self._copies: list[Snapshot] = []
        self._copied: set[int] = set()
        self._is_room = True
        """Whether there is room for copies; found out once, since a vain try at every step would cost time."""

    @contextmanager
    def guard(self, optimizers: Sequence[Any], tensors: Sequence[Any]) -> Iterator[None]:
        """Have the optimizers copy before they update anything, and notice changes of any of `tensors`."""
        self._versions = [(tensor, tensor._version) for tensor in tensors]
        own = [(optimizer, vars(optimizer).get("apply")) for optimizer in optimizers]
        for optimizer in optimizers:
            # Not by assignment, which Keras would track.
            vars(optimizer)["apply"] = self._guarded_apply(optimizer, optimizer.apply)
        try:
            yield
        finally:
            for optimizer, apply in own:
                del vars(optimizer)["apply"]
                if apply is not None:
                    vars(optimizer)["apply"] = apply
            self._forget_copies()
            self._versions.clear()

    def roll_back(self) -> bool:
        """Give weights and optimizers the values of before the step. False where something changed without a copy."""
        lost = any(tensor._version != before for tensor, before in self._versions if id(tensor) not in self._copied)
        for copies in reversed(self._copies):
            copies.restore()
        self._versions = [(tensor, tensor._version) for tensor, _ in self._versions]
        self._forget_copies()
        return not lost

    def _guarded_apply(self, optimizer: Any, apply: _Apply) -> _Apply:
        def guarded(grads: Any, trainable_variables: Any = None) -> Any:
            if not optimizer.built:
                optimizer.build(trainable_variables)
            if not self._copy(optimizer, trainable_variables):
                with defer_signals():
                    return apply(grads, trainable_variables)
            try:
                return apply(grads, trainable_variables)
            except Exception as error:
                if not is_out_of_memory(error) or len(self._copies) > 1:  # another update would be rolled back too
                    raise
            # Here the error is gone, and what its frames held. The room of the copies may be all that was missing.
            self.roll_back()
            self._is_room = False
            with defer_signals():
                return apply(grads, trainable_variables)

        return guarded

    def _copy(self, optimizer: Any, trainable_variables: Any) -> bool:
        """Copy all that an update may change and that is not copied yet; False where there is no room."""
        if not self._is_room:
            return False
        known = optimizer._trainable_variables  # averages are written to all of them
        variables = (*(trainable_variables or ()), *known, *optimizer.variables)
        tensors = {id(tensor): tensor for tensor in [variable._value for variable in variables]}
        new = tensors if not self._copied else {key: each for key, each in tensors.items() if key not in self._copied}
        try:
            self._copies.append(Snapshot(list(new.values())))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self._is_room = False
            return False
        self._copied.update(new)
        return True

    def _forget_copies(self) -> None:
        self._copies.clear()
        self._copied.clear()
