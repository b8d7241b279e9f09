"""Faults of a scenario: `camera_front:fail@3s-5s`, or the same as a mapping."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator
from typing_extensions import Self

from microsim.documents.values import Finite, Model, PointXYZ, show, unknown
from microsim.errors import did_you_mean
from microsim.faults import FAULTS
from microsim.faults.fault_kind import RADIO
from microsim.robots.robot import Robot, sensor_of

FORM = "TARGET:KIND@FROMs-TOs, such as camera_front:fail@3s-5s or gps:jump(10,0,0)@3s-9s"
_TEXT = re.compile(
    r"\s*(?P<target>[\w/]+)\s*:\s*(?P<kind>\w+)\s*(?:\((?P<offset>[^()]*)\))?\s*@"
    r"\s*(?P<start>[0-9.]+)\s*s?\s*-\s*(?P<end>[0-9.]+)\s*s?\s*"
)
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


def _kinds() -> str:
    return " ".join(f"{kind.name}: {kind.about}." for kind in FAULTS.built_in.values())


class Fault(Model):
    """Something out of order for a while. As text: `TARGET:KIND@FROMs-TOs`."""

    target: str = Field(
        min_length=1, description="A sensor: its name, or `robot/sensor` where several have it; or `radio`."
    )
    kind: Annotated[str, Field(strict=True), WithJsonSchema({"type": "string", "enum": list(FAULTS.built_in)})] = Field(
        description=_kinds()
    )
    from_s: Seconds = Field(0.0, description="When it begins, simulated time [s].")
    to_s: Seconds = Field(description="When all is well again [s].")
    offset_m: PointXYZ = Field((0.0, 0.0, 0.0), description="East, north, up by which a GPS jumps [m].")

    @field_validator("kind")
    @classmethod
    def _known(cls, value: str, info: ValidationInfo) -> str:
        folders = (info.context or {}).get("plugins", ())
        if FAULTS.find(value, folders) is None:
            raise ValueError(unknown("fault", value, FAULTS.names(folders)))
        return value

    @model_validator(mode="after")
    def _makes_sense(self, info: ValidationInfo) -> Self:
        if self.from_s >= self.to_s:
            raise ValueError(f"expected from_s below to_s, found {show(self.from_s)} and {show(self.to_s)}")
        kind = FAULTS.find(self.kind, (info.context or {}).get("plugins", ()))
        assert kind is not None  # checked above
        if kind.takes_offset and not any(self.offset_m):
            raise ValueError(f"a {kind.name} needs `offset_m`, as in {kind.example}")
        if not kind.takes_offset and any(self.offset_m):
            raise ValueError(f"offset_m belongs to a jump, not to {self.kind}")
        if (kind.effect == "blackout") != (self.target == RADIO):
            raise ValueError("a blackout is the radio's, and the radio's only fault: radio:blackout@3s-5s")
        return self


FaultOrText = Annotated[Fault, BeforeValidator(_from_text)]


def resolved(fault: Fault, robots: Mapping[str, Robot], folders: Iterable[str] = ()) -> Fault:
    """With its target as robot/sensor; ValueError says why there is none."""
    if fault.target == RADIO:
        return fault
    sensors = {
        f"{robot}/{name}": sensor_of(block, name, folders)
        for robot, each in robots.items()
        for name, block in each.all_sensors().items()
    }
    found = [target for target in sensors if fault.target in (target, target.partition("/")[2])]
    if not found:
        near = did_you_mean(fault.target, [*sensors, *(name.partition("/")[2] for name in sensors), RADIO])
        raise ValueError(f"no sensor {show(fault.target)}{near or ';'} there are: {', '.join([*sensors, RADIO])}")
    if len(found) > 1:
        raise ValueError(f"several robots have a sensor {show(fault.target)}: say which: {', '.join(found)}")
    kind = FAULTS.find(fault.kind, folders)
    assert kind is not None
    if not kind.suits(sensors[found[0]]):
        fit = [target for target, sensor in sensors.items() if kind.suits(sensor)]
        raise ValueError(f"{found[0]} cannot {fault.kind}; supported by: {', '.join(fit) or 'none here'}")
    return fault.model_copy(update={"target": found[0]})
