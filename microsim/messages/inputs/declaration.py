"""What an input is: a file with one constant `INPUT = InputKind(...)`, for nodes, recordings and the viewer alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from microsim.messages.topics import Qos, Topic

if TYPE_CHECKING:
    from microsim.simulation import Simulation


@dataclass(frozen=True)
class InputKind:
    """A message that a robot takes."""

    name: str
    topic: str  # with {robot}
    type: str
    qos: Qos
    rate: str
    about: str
    take: Callable[[Simulation, str, Any], bool]  # robot, decoded message; False: ignored and counted
    stamped_type: str = ""  # of scenarios with `stamped_cmd_vel`
    applies: Callable[[Simulation, str], bool] | None = None  # default: robots that list it in `inputs`
    position: int = 1000

    def is_taken_by(self, sim: Simulation, robot: str) -> bool:
        if self.applies is not None:
            return self.applies(sim, robot)
        return self.name in sim.scenario.robots[robot].inputs

    def type_for(self, sim: Simulation) -> str:
        return self.stamped_type if self.stamped_type and sim.scenario.stamped_cmd_vel else self.type

    def topic_row(self) -> Topic:
        return Topic(self.name, self.topic, self.type, self.qos, self.rate, "in", self.about)
