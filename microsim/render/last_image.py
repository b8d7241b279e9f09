"""A camera's last image, for when the next one cannot be made."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.engine.faults import DROPOUT, FAIL, Health, of_target


class Film:
    """Gives new images, or the last one while the camera fails; the very first is black then.

    A camera `may_break` when making an image can go wrong by itself, as with a device that is lost.
    """

    def __init__(self, sensor: str, health: Health, shape: tuple[int, int, int], may_break: bool = False) -> None:
        self.sensor = sensor
        self.health = health
        self.shape = shape
        faults = of_target(health.faults, sensor)
        self.may_break = may_break
        self.can_fail = may_break or any(fault.kind == FAIL for fault in faults)
        self.can_drop = any(fault.kind == DROPOUT for fault in faults)
        self.last: npt.NDArray[np.uint8] | None = None  # kept only where it can be needed

    def exposed(self, tick: int, expose: Callable[[], npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8] | None:
        """The image of this tick; None when nothing is to be sent."""
        if self.can_drop and self.health.drops(self.sensor, tick):
            return None
        if self.can_fail and self.health.at(self.sensor, FAIL, tick) is not None:
            return self._again("failed")
        try:
            image = expose()
        except Exception as error:  # a camera that fails must not end the run
            if not self.may_break:
                raise
            return self._again(f"failed ({type(error).__name__}: {error})")
        if self.can_fail:
            self.health.note(self.sensor, "")
            self.last = image
        return image

    def _again(self, what: str) -> npt.NDArray[np.uint8]:
        self.health.note(self.sensor, f"{what}, its last image is sent again")
        return np.zeros(self.shape, np.uint8) if self.last is None else self.last

    def memory(self) -> Any:
        return None if self.last is None else self.last.tobytes()

    def recall(self, memory: Any) -> None:
        self.last = None if memory is None else np.frombuffer(memory, np.uint8).reshape(self.shape).copy()
