"""Whether a call is still running, asked from another thread: Keras does not tell a callback that `fit` failed."""

import sys
import threading
from types import FrameType


class RunningCall:
    """The call around a callback's method, under way in this thread when this was made.

    Nothing of it is kept alive: frames hold arrays, and an error's traceback holds frames.
    """

    def __init__(self, method: str) -> None:
        """`method`: its name. Calls of that name, of a list of callbacks or of one around another, are gone through."""
        frame = sys._getframe(1)
        while frame.f_code.co_name == method and frame.f_back is not None:
            frame = frame.f_back
        self._thread, self._place = threading.get_ident(), (id(frame), frame.f_code)

    def is_running(self) -> bool:
        """Whether the call has neither returned nor raised."""
        frame: FrameType | None = sys._current_frames().get(self._thread)
        while frame is not None:
            if (id(frame), frame.f_code) == self._place:
                return True
            frame = frame.f_back
        return False
