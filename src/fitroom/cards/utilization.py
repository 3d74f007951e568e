"""How busy the NVIDIA cards of this process are, asked of the driver again and again."""

from typing import Any

from fitroom.cards.nvml import visible_handles


class UtilizationReader:
    """Reads the share of the last sample period (up to a second) in which a kernel was running on each card.

    The driver is opened once; `close` lets go of it. Without an NVIDIA driver there is nothing to read.
    """

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: list[Any] = []
        import pynvml

        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return
        self._nvml = pynvml
        self._handles = visible_handles(pynvml)

    def read(self) -> dict[str, float]:
        """The share by device, named as a framework counts the cards: {"gpu:0": 0.97}. Cards that do not tell lack."""
        found = {}
        for index, handle in enumerate(self._handles):
            try:
                found[f"gpu:{index}"] = self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            except self._nvml.NVMLError:
                continue
        return found

    def close(self) -> None:
        """Let go of the driver. Later readings are empty."""
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
        self._nvml, self._handles = None, []
