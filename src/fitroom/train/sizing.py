"""How many samples go to the device at once, learnt from what failed.

The rule. A batch begins whole, or at the micro-batch that was asked for. Out of memory halves it, for this batch and
all that follow. After a clean stretch (100 updates at first) twice as much is tried once, up to where it began. A try
that fails doubles the stretch before the next one, so a card that is simply too small is tried 100, 200, 400, ...
updates apart; one that succeeds is kept, and the stretch begins anew.
"""

from dataclasses import dataclass

FIRST_STRETCH = 100


@dataclass(kw_only=True)
class Sizing:
    """The size in force."""

    ceiling: int | None = None
    """The most samples at once that may ever be tried; None: whole batches."""

    current: int | None = None
    """The most samples at once now; None: as `ceiling` says."""

    stretch: int = FIRST_STRETCH
    """How many clean updates come before a larger size is tried."""

    clean: int = 0
    """Updates since the last change or failure."""

    fell_from: int | None = None
    """While a larger size is being tried: the size to fall back to."""

    def samples_at_once(self, batch_size: int) -> int:
        """For a batch of this size."""
        return min(size for size in (self.current, self.ceiling, batch_size) if size is not None)

    def last_done(self, batch_size: int) -> int:
        """How many were at once in the update before, in a batch of this size. A larger size to be tried is next."""
        return min(size for size in (self.fell_from or self.current, self.ceiling, batch_size) if size is not None)

    def failed(self, samples: int) -> int:
        """Out of memory with this many at once: the size to go on with."""
        if self.fell_from is not None and self.fell_from < samples:
            self.current, self.stretch = self.fell_from, self.stretch * 2
        else:
            self.current = -(-samples // 2)
        self.clean, self.fell_from = 0, None
        return self.current

    def succeeded(self, batch_size: int) -> None:
        """An update went well."""
        self.clean += 1
        if self.fell_from is not None:
            self.fell_from, self.stretch, self.clean = None, FIRST_STRETCH, 0
        if self.current is None or self.clean < self.stretch:
            return
        top = min(size for size in (self.ceiling, batch_size) if size is not None)
        if self.current < top:
            self.fell_from, self.current, self.clean = self.current, min(self.current * 2, top), 0

    def to_dict(self) -> dict[str, int | None]:
        """For a checkpoint."""
        return {"current": self.current, "stretch": self.stretch, "clean": self.clean, "fell_from": self.fell_from}

    def restore(self, saved: dict[str, int | None]) -> None:
        """Go on as a checkpoint says."""
        self.current, self.fell_from = saved["current"], saved["fell_from"]
        self.stretch, self.clean = saved["stretch"] or FIRST_STRETCH, saved["clean"] or 0
