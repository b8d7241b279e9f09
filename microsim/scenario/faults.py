"""Faults of a scenario: `camera_front:fail@3s-5s`, or the same as a mapping."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from microsim.documents.values import Finite, Model, PointXYZ, show
from microsim.errors import did_you_mean
from microsim.scenario.robots import Robot
from microsim.scenario.sensors import Camera, Gps, Lidar, SensorBlock

FORM = "TARGET:KIND@FROMs-TOs, such as camera_front:fail@3s-5s or gps:jump(10,0,0)@3s-9s"
_TEXT = re.compile(
    r"\s*(?P<target>[\w/]+)\s*:\s*(?P<kind>\w+)\s*(?:\((?P<offset>[^()]*)\))?\s*@"
    r"\s*(?P<start>[0-9.]+)\s*s?\s*-\s*(?P<end>[0-9.]+)\s*s?\s*"
)
_KINDS: dict[str, tuple[type[SensorBlock], ...]] = {
    "fail": (Camera, Lidar),
    "dropout": (SensorBlock,),
    "jump": (Gps,),
}
Seconds = Annotated[Finite, Field(ge=0, le=2**31)]


def _from_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = _TEXT.fullmatch(value)
    if found is None:
        raise ValueError(f"expected {FORM}, found {show(value)}")
    parts: dict[str, Any] = {"target": found["target"], "kind": found["kind"]}
    try:
        parts |= {"from_s": float(found["start"]), "to_s": float(found["end"])}
        if found["offset"] is not None:
            parts["offset_m"] = [float(number) for number in found["offset"].split(",")]
    except ValueError:
        raise ValueError(f"expected {FORM}, found {show(value)}") from None
    return parts


class Fault(Model):
    """Something out of order for a while. As text: `TARGET:KIND@FROMs-TOs`."""

    target: str = Field(
        min_length=1, description="A sensor: its name, or `robot/sensor` where several have it; or `radio`."
    )
    kind: Literal["fail", "dropout", "blackout", "jump"] = Field(
        description="fail: a camera repeats its last image, a LiDAR gives no points. dropout: nothing is sent. "
        "blackout: the radio loses every packet. jump: a GPS is off by `offset_m`."
    )
    from_s: Seconds = Field(0.0, description="When it begins, simulated time [s].")
    to_s: Seconds = Field(description="When all is well again [s].")
    offset_m: PointXYZ = Field((0.0, 0.0, 0.0), description="East, north, up by which a GPS jumps [m].")

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.from_s >= self.to_s:
            raise ValueError(f"expected from_s below to_s, found {show(self.from_s)} and {show(self.to_s)}")
        if self.kind == "jump" and not any(self.offset_m):
            raise ValueError("a jump needs `offset_m`, as in gps:jump(10,0,0)@3s-9s")
        if self.kind != "jump" and any(self.offset_m):
            raise ValueError(f"offset_m belongs to a jump, not to {self.kind}")
        if (self.kind == "blackout") != (self.target == "radio"):
            raise ValueError("a blackout is the radio's, and the radio's only fault: radio:blackout@3s-5s")
        return self


FaultOrText = Annotated[Fault, BeforeValidator(_from_text)]


def resolved(fault: Fault, robots: Mapping[str, Robot]) -> Fault:
    """With its target as robot/sensor; ValueError says why there is none."""
    if fault.target == "radio":
        return fault
    known = {f"{robot}/{name}": block for robot, each in robots.items() for name, block in each.all_sensors().items()}
    found = [target for target in known if fault.target in (target, target.partition("/")[2])]
    names = ", ".join([*known, "radio"])
    if not found:
        near = did_you_mean(fault.target, [*known, *(name.partition("/")[2] for name in known), "radio"])
        raise ValueError(f"no sensor {show(fault.target)}{near or ';'} there are: {names}")
    if len(found) > 1:
        raise ValueError(f"several robots have a sensor {show(fault.target)}: say which: {', '.join(found)}")
    if not isinstance(known[found[0]], _KINDS[fault.kind]):
        fit = [target for target, block in known.items() if isinstance(block, _KINDS[fault.kind])]
        raise ValueError(f"{found[0]} cannot {fault.kind}; those who can: {', '.join(fit) or 'none here'}")
    return fault.model_copy(update={"target": found[0]})
