"""A PyDataset together with what it takes to bring it back to where it was.

Its `on_epoch_begin` and `on_epoch_end` are called again, as often as they were and each in the random state of its
first call: that brings back data which they reorder or load. Then its attributes get the values they had
(`own_state.py`): orders, random generators, counters.
"""

from collections.abc import Callable
from typing import Any

from fitroom.inputs import own_state, randomness


class Hooked:
    """A dataset whose hooks are remembered."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._before = own_state.plain_values(dataset)
        self._orders = own_state.orders(dataset)
        self._calls: dict[str, Any] = {}
        self._began = False
        self.within_epoch = False

    def begin_epoch(self, *, is_first: bool = False) -> None:
        """Tell the dataset; before a first epoch also, as Keras does, that one has ended."""
        if is_first or not self._began:
            self._call("on_epoch_end")
            self._began = True
        self._call("on_epoch_begin")
        self.within_epoch = True

    def end_epoch(self) -> None:
        """Tell the dataset, which may shuffle now."""
        self._call("on_epoch_end")
        self.within_epoch = False

    def state(self) -> dict[str, Any]:
        """The random state, the dataset's own, and the states in which its hooks were called."""
        return {
            "random": randomness.capture(),
            "own": own_state.changes(self.dataset, self._before),
            "orders": self._orders,
            "calls": dict(self._calls),
            "began": self._began,
            "within_epoch": self.within_epoch,
        }

    def bring_back(self, state: dict[str, Any]) -> None:
        """Make a dataset that the user's script has just made what it was when it gave this state."""
        for number in sorted(state["calls"], key=int):
            call = state["calls"][number]
            randomness.restore(call["random"])
            own_state.restore(self.dataset, call["own"])
            getattr(self.dataset, call["name"])()
        own_state.restore(self.dataset, state["own"], state["orders"])
        self._calls, self._orders = dict(state["calls"]), state["orders"]
        self._began, self.within_epoch = bool(state["began"]), bool(state["within_epoch"])

    def without_trace(self, make: Callable[[], Any]) -> Any:
        """What `make` makes of the dataset, with the random state and the dataset's own as before."""
        random, own = randomness.capture(), own_state.changes(self.dataset, {})
        made = make()
        own_state.restore(self.dataset, own)
        randomness.restore(random)
        return made

    def _call(self, name: str) -> None:
        hook = getattr(self.dataset, name)
        if getattr(hook, "__qualname__", "") == f"PyDataset.{name}":  # Keras's own, which does nothing
            return
        own = own_state.changes(self.dataset, self._before)
        self._calls[str(len(self._calls))] = {"name": name, "random": randomness.capture(), "own": own}
        hook()
        self._orders = own_state.orders(self.dataset)
