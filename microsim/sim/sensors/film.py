"""A camera's last image, for when the next one cannot be made."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.sim.faults import DROPOUT, FAIL, Health, of_target


class Film:
    """Gives new images, or the last one while the camera fails; the very first is black then."""

    def __init__(self, sensor: str, health: Health, shape: tuple[int, int, int]) -> None:
        self.sensor = sensor
        self.health = health
        self.shape = shape
        faults = of_target(health.faults, sensor)
        self.can_fail = any(fault.kind == FAIL for fault in faults)
        self.can_drop = any(fault.kind == DROPOUT for fault in faults)
        self.last: npt.NDArray[np.uint8] | None = None  # kept only where it can be needed

    def exposed(self, tick: int, expose: Callable[[], npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8] | None:
        """The image of this tick; None when nothing is to be sent."""
        if self.can_drop and self.health.drops(self.sensor, tick):
            return None
        if self.can_fail and self.health.at(self.sensor, FAIL, tick) is not None:
            self.health.note(self.sensor, "failed, its last image is sent again")
            return np.zeros(self.shape, np.uint8) if self.last is None else self.last
        image = expose()
        if self.can_fail:
            self.health.note(self.sensor, "")
            self.last = image
        return image

    def memory(self) -> Any:
        return None if self.last is None else self.last.tobytes()

    def recall(self, memory: Any) -> None:
        self.last = None if memory is None else np.frombuffer(memory, np.uint8).reshape(self.shape).copy()
