"""How many samples go to the device at once and what is recomputed, learnt from what failed.

The rule. A batch begins as the first recipe says: whole, or at its micro-batch. Out of memory takes the next recipe,
for this batch and all that follow; after the last one, or where there is only one, it halves the size. After a clean
stretch (100 updates at first) one step back is tried once, twice as much or the recipe before, up to where it began. A
try that fails, at once or before a stretch of it is over, doubles the stretch before the next one: a card that is
simply too small is tried 100, 200, 400, ... updates apart. One that lasts is kept, and the stretch begins anew.
"""

from dataclasses import dataclass, replace
from typing import Any

from fitroom.recipe import Recipe

FIRST_STRETCH = 100

Place = tuple[int, int | None]
"""A recipe's number, and the most samples at once where that is less than the recipe's."""


@dataclass(kw_only=True)
class Sizing:
    """The size in force.

    >>> sizing = Sizing(recipes=(Recipe(), Recipe(remat="blocks")))
    >>> sizing.failed(64), sizing.recipe.remat, sizing.samples_at_once(64)
    (True, 'blocks', 64)
    >>> sizing.failed(64), sizing.recipe.remat, sizing.samples_at_once(64)
    (True, 'blocks', 32)
    """

    recipes: tuple[Recipe, ...] = (Recipe(),)
    """What to begin with, then what to go on with where memory runs out; of each `remat` and `micro_batch` count."""

    whole: int | None = None
    """The samples of a whole batch, where they are known beforehand."""

    number: int = 0
    """Of the recipe in force."""

    current: int | None = None
    """The most samples at once now; None: as the recipe says."""

    most: int | None = None
    """The most samples at once that are ever tried: more of them left a process in which nothing fitted any more."""

    stretch: int = FIRST_STRETCH
    """How many clean updates come before a larger size is tried."""

    clean: int = 0
    """Updates since the last change or failure."""

    fell_from: Place | None = None
    """While a larger size is being tried: the place to fall back to."""

    is_new: bool = False
    """Whether a larger size went well and has not lasted for a stretch yet."""

    @property
    def recipe(self) -> Recipe:
        """The recipe in force, with the micro-batch in force."""
        return self._at((self.number, self.current))

    def samples_at_once(self, batch_size: int) -> int:
        """For a batch of this size."""
        return _least(self.recipe.micro_batch, batch_size)

    def last_done(self, batch_size: int) -> Recipe:
        """How the update before was done, in a batch of this size. A larger size to be tried is next."""
        recipe = self._at(self.fell_from or (self.number, self.current))
        return replace(recipe, micro_batch=_least(recipe.micro_batch, batch_size))

    def failed(self, samples: int, *, can_cut: bool = True) -> bool:
        """Out of memory with this many at once. Whether there is a smaller way, which is in force then."""
        if self.fell_from is not None and self._is_smaller(self._at(self.fell_from), samples):
            self.number, self.current = self.fell_from
            self.is_new = True
        else:
            below = self._below(samples, can_cut=can_cut)
            if below is None:
                return False
            self.number, self.current = below
        if self.is_new:
            self.stretch *= 2
        self.clean, self.fell_from, self.is_new = 0, None, False
        return True

    def succeeded(self, batch_size: int) -> None:
        """An update went well."""
        self.clean += 1
        if self.fell_from is not None:
            self.fell_from, self.is_new, self.clean = None, True, 0
        if self.clean < self.stretch:
            return
        if self.is_new:
            self.is_new, self.stretch = False, FIRST_STRETCH
        above = self._above(batch_size)
        if above is not None:
            self.fell_from, self.clean = (self.number, self.current), 0
            self.number, self.current = above

    def to_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "place": self._kept((self.number, self.current)),
            "fell_from": None if self.fell_from is None else self._kept(self.fell_from),
            "stretch": self.stretch,
            "clean": self.clean,
            "is_new": self.is_new,
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Go on as a checkpoint says; with the first recipe, where the one of then is none of these."""
        self.number, self.current = self._found_again(saved["place"])
        self.fell_from = None if saved["fell_from"] is None else self._found_again(saved["fell_from"])
        self.stretch, self.clean, self.is_new = saved["stretch"], saved["clean"], saved["is_new"]

    def _at(self, place: Place) -> Recipe:
        number, current = place
        recipe = self.recipes[number]
        sizes = [size for size in (current, recipe.micro_batch, self.most) if size is not None]
        return replace(recipe, micro_batch=min(sizes, default=None))

    def _below(self, samples: int, *, can_cut: bool) -> Place | None:
        """The next recipe that makes a difference to so many samples; half of them after the last."""
        for number, recipe in enumerate(self.recipes[self.number + 1 :], start=self.number + 1):
            cuts = _least(recipe.micro_batch, samples) < samples
            if self._is_smaller(recipe, samples) and (can_cut or not cuts):
                return number, None
        last = len(self.recipes) - 1
        return (last, -(-samples // 2)) if can_cut and samples > 1 else None

    def _is_smaller(self, recipe: Recipe, samples: int) -> bool:
        return _least(recipe.micro_batch, samples) < samples or recipe.remat != self.recipe.remat

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
        return (self.number - 1, None) if self.number else None

    def _kept(self, place: Place) -> dict[str, Any]:
        return {"recipe": self.recipes[place[0]].to_dict(), "current": place[1]}

    def _found_again(self, kept: dict[str, Any]) -> Place:
        then = Recipe(**kept["recipe"])
        same = (one.remat == then.remat and one.micro_batch == then.micro_batch for one in self.recipes)
        return next((number for number, is_same in enumerate(same) if is_same), 0), kept["current"]


def _least(size: int | None, batch_size: int) -> int:
    return batch_size if size is None else min(size, batch_size)
