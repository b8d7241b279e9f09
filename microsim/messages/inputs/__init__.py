"""Messages that a run takes, for nodes, recordings and the viewer alike: a constant `INPUT = InputKind(...)` in a file;
shipped ones that belong together share one file. `INPUTS` finds them: built in, installed, or in a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, get_args

from microsim.errors import unknown
from microsim.messages.topics import Qos, Topic
from microsim.plugin_errors import plugin_errors
from microsim.registry import Registry

Made: TypeAlias = Literal["command", "pose", "packet"]


class InputTarget(Protocol):
    """What inputs act on: a `Simulation`."""

    @property
    def scenario(self) -> Any: ...

    @property
    def radio(self) -> Any: ...

    def command_twist(self, robot: str, linear: Sequence[float], turn: float, stamp_ns: int | None = None) -> bool: ...

    def command_values(self, robot: str, values: Mapping[str, float], stamp_ns: int | None = None) -> bool: ...

    def set_pose(
        self, robot: str, x: float, y: float, z: float | None = None, yaw: float = 0.0, stamp_ns: int | None = None
    ) -> bool: ...

    def radio_send(self, sender: str, payload: bytes) -> bool: ...

    def frame_poses(self) -> Mapping[str, tuple[str, tuple[float, ...]]]: ...


@dataclass(frozen=True)
class InputKind:
    """A message that a robot takes."""

    name: str
    topic: str  # with {robot}
    type: str
    qos: Qos
    rate: str
    about: str
    take: Callable[[InputTarget, str, Any], bool]  # robot, decoded message; False: ignored and counted
    stamped_type: str = ""  # of scenarios with `stamped_cmd_vel`
    meant_for: Callable[[InputTarget, str], bool] | None = None  # robot; default: robots that list it in `inputs`
    applies: Callable[[InputTarget], bool] = lambda sim: True  # whether it can have an effect in this run
    position: int = 1000
    makes: Made = "command"  # of the robot: what faults on its topic act on

    def __post_init__(self) -> None:
        for name in ("take", "meant_for", "applies"):
            if not callable(getattr(self, name) or len):
                raise TypeError(f"{self.name}: {name}: expected a function, found {getattr(self, name)!r}")
        if not self.topic.startswith("/"):
            raise ValueError(f"{self.name}: topic: expected one such as /{{robot}}/{self.name}, found {self.topic!r}")
        if not isinstance(self.qos, Qos):
            raise TypeError(f"{self.name}: qos: expected a Qos, found {self.qos!r}")
        kinds: tuple[str, ...] = get_args(Made)
        if self.makes not in kinds:
            raise ValueError(f"{self.name}: {unknown('makes: there is no', repr(self.makes), self.makes, kinds)}")

    def is_taken_by(self, sim: InputTarget, robot: str) -> bool:
        with plugin_errors(f"input {self.name}", self):
            return self.is_meant_for(sim, robot) and self.applies(sim)

    def is_meant_for(self, sim: InputTarget, robot: str) -> bool:
        """Whether recordings have a place for it, though it may have no effect in this run."""
        if self.meant_for is not None:
            with plugin_errors(f"input {self.name}", self):
                return self.meant_for(sim, robot)
        return self.name in sim.scenario.robots[robot].inputs

    def type_for(self, sim: InputTarget) -> str:
        return self.stamped_type if self.stamped_type and sim.scenario.stamped_cmd_vel else self.type

    def types(self) -> tuple[str, ...]:
        return (self.type, self.stamped_type) if self.stamped_type else (self.type,)

    def of(self, robot: str) -> str:
        """The topic of a robot."""
        return self.topic.format(robot=robot)

    def topic_row(self) -> Topic:
        return Topic(self.name, self.topic, self.type, self.qos, self.rate, "in", self.about)


def stamp_of(message: Any) -> int | None:
    """[ns] of the message or its header; None: it has none."""
    stamp = getattr(getattr(message, "header", message), "stamp", None)
    return None if stamp is None else int(stamp.sec) * 10**9 + int(stamp.nanosec)


INPUTS: Registry[InputKind] = Registry(
    "INPUT",
    "microsim.messages.inputs",
    "microsim.inputs",
    "InputKind(...)",
    lambda part: isinstance(part, InputKind),
    order=lambda part: part.position,
)
