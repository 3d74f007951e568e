"""The micro-batch and the remat of the steps, learnt from what ran out of memory.

The rule. A batch starts as the first recipe says: whole, or with its micro-batch. Out of memory switches to the next
recipe, for this batch and all that follow; after the last one, or where there is only one, it halves the micro-batch.
After an interval of clean updates (100 at first) one step back is tried: twice the micro-batch, or the recipe before,
up to what the training started with. A trial that fails, immediately or within an interval, doubles the interval: on a
card that is simply too small, trials are 100, 200, 400, ... updates apart. A trial that lasts is kept, and the interval
starts anew.
"""

from dataclasses import dataclass, replace
from typing import Any

from fitroom.recipe import Recipe

FIRST_TRIAL_INTERVAL = 100

Place = tuple[int, int | None]
"""The number of a recipe, and the micro-batch where that is smaller than the recipe's."""


@dataclass(kw_only=True)
class Sizing:
    """The recipe and the micro-batch in force.

    >>> sizing = Sizing(recipes=(Recipe(), Recipe(remat="blocks")))
    >>> sizing.failed(64), sizing.recipe.remat, sizing.micro_batch_for(64)
    (True, 'blocks', 64)
    >>> sizing.failed(64), sizing.recipe.remat, sizing.micro_batch_for(64)
    (True, 'blocks', 32)
    """

    recipes: tuple[Recipe, ...] = (Recipe(),)
    """The recipe to start with, then those for when memory runs out. Only `remat`, `kernels` and `micro_batch` of each
    are used."""

    whole: int | None = None
    """The size of a whole batch, where it is known beforehand."""

    number: int = 0
    """The number of the recipe in force."""

    current: int | None = None
    """The micro-batch in force; None: as the recipe says."""

    most: int | None = None
    """The largest micro-batch that is ever tried: a larger one left a process in which nothing fitted any more."""

    trial_interval: int = FIRST_TRIAL_INTERVAL
    """How many clean updates come before a larger size is tried."""

    clean: int = 0
    """Updates since the last change or failure."""

    fallback: Place | None = None
    """The place to fall back to, while a larger size is being tried."""

    is_new: bool = False
    """Whether a larger size succeeded, but not for a whole interval yet."""

    @property
    def recipe(self) -> Recipe:
        """The recipe in force, with the micro-batch in force."""
        return self._at((self.number, self.current))

    def micro_batch_for(self, batch_size: int) -> int:
        """The micro-batch in force for a batch of this size."""
        return _least(self.recipe.micro_batch, batch_size)

    def last_done(self, batch_size: int) -> Recipe:
        """The recipe of the last update, for a batch of this size. The next one may try a larger size."""
        recipe = self._at(self.fallback or (self.number, self.current))
        return replace(recipe, micro_batch=_least(recipe.micro_batch, batch_size))

    def failed(self, samples: int, *, can_split: bool = True) -> bool:
        """Note out of memory with a micro-batch of `samples`, and switch to less. Returns whether there is less."""
        if self.fallback is not None and self._is_smaller(self._at(self.fallback), samples):
            self.number, self.current = self.fallback
            self.is_new = True
        else:
            below = self._below(samples, can_split=can_split)
            if below is None:
                return False
            self.number, self.current = below
        if self.is_new:
            self.trial_interval *= 2
        self.clean, self.fallback, self.is_new = 0, None, False
        return True

    def return_to(self, place: Place) -> None:
        """Undo a smaller micro-batch, as the batch turned out not to be one that can be split."""
        self.number, self.current = place

    def add(self, fallbacks: tuple[Recipe, ...]) -> None:
        """Add recipes for when memory runs out, after all others."""
        self.recipes = (*self.recipes, *fallbacks)

    def succeeded(self, batch_size: int) -> None:
        """Note that an update succeeded."""
        self.clean += 1
        if self.fallback is not None:
            self.fallback, self.is_new, self.clean = None, True, 0
        if self.clean < self.trial_interval:
            return
        if self.is_new:
            self.is_new, self.trial_interval = False, FIRST_TRIAL_INTERVAL
        above = self._above(batch_size)
        if above is not None:
            self.fallback, self.clean = (self.number, self.current), 0
            self.number, self.current = above

    def to_dict(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {
            "place": self._to_saved((self.number, self.current)),
            "fell_from": None if self.fallback is None else self._to_saved(self.fallback),
            "stretch": self.trial_interval,
            "clean": self.clean,
            "is_new": self.is_new,
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore the state of a checkpoint; the first recipe, where the recorded one is not among these."""
        self.number, self.current = self._from_saved(saved["place"])
        self.fallback = None if saved["fell_from"] is None else self._from_saved(saved["fell_from"])
        self.trial_interval, self.clean, self.is_new = saved["stretch"], saved["clean"], saved["is_new"]

    def _at(self, place: Place) -> Recipe:
        number, current = place
        recipe = self.recipes[number]
        sizes = [size for size in (current, recipe.micro_batch, self.most) if size is not None]
        return replace(recipe, micro_batch=min(sizes, default=None))

    def _below(self, samples: int, *, can_split: bool) -> Place | None:
        """The next recipe that takes less memory for so many samples; half of them after the last."""
        for number, recipe in enumerate(self.recipes[self.number + 1 :], start=self.number + 1):
            splits = _least(recipe.micro_batch, samples) < samples
            if self._is_smaller(recipe, samples) and (can_split or not splits):
                return number, None
        last = len(self.recipes) - 1
        return (last, -(-samples // 2)) if can_split and samples > 1 else None

    def _is_smaller(self, recipe: Recipe, samples: int) -> bool:
        ours = self.recipe
        return (
            _least(recipe.micro_batch, samples) < samples
            or recipe.remat != ours.remat
            or recipe.kernels != ours.kernels
        )

    def _above(self, batch_size: int) -> Place | None:
        recipe = self.recipes[self.number]
        if self.most is not None:
            is_more = self.current is not None and self.current * 2 <= min(self.most, batch_size)
            return (self.number, (self.current or 0) * 2) if is_more else None
        if self.current is not None:
            top = _least(recipe.micro_batch, batch_size)
            if self.current < top:
                return self.number, min(self.current * 2, top)
            most = recipe.micro_batch or self.whole
            if most is None or self.current < most:  # this batch is a short one
                return None
        # Not back to kernels that take more memory and time: that would only change the rounding once more.
        return (
            (self.number - 1, None) if self.number and self.recipes[self.number - 1].kernels == recipe.kernels else None
        )

    def _to_saved(self, place: Place) -> dict[str, Any]:
        return {"recipe": self.recipes[place[0]].to_dict(), "current": place[1]}

    def _from_saved(self, kept: dict[str, Any]) -> Place:
        then = Recipe(**kept["recipe"])
        wanted = (then.remat, then.kernels, then.micro_batch)
        same = ((one.remat, one.kernels, one.micro_batch) == wanted for one in self.recipes)
        return next((number for number, is_same in enumerate(same) if is_same), 0), kept["current"]


def _least(size: int | None, batch_size: int) -> int:
    return batch_size if size is None else min(size, batch_size)
