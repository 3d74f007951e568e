"""Whether a call is still running, asked from another thread: Keras does not tell a callback that `fit` failed."""

import sys
import threading
from types import FrameType


class RunningCall:
    """A call that was under way in this thread when this was made.

    Nothing of it is kept alive: frames hold arrays, and an error's traceback holds frames.
    """

    def __init__(self, callers: int) -> None:
        """`callers`: how many calls lie between this one and the one that is meant."""
        frame = sys._getframe(callers + 1)
        self._thread, self._place = threading.get_ident(), (id(frame), frame.f_code)

    def is_running(self) -> bool:
        """Whether the call has neither returned nor raised."""
        frame: FrameType | None = sys._current_frames().get(self._thread)
        while frame is not None:
            if (id(frame), frame.f_code) == self._place:
                return True
            frame = frame.f_back
        return False
