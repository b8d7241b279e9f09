"""`faults:` what goes wrong when, and `chaos:` faults that the seed draws."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from typing_extensions import Self

from microsim.documents.values import Finite, Model, PointXYZ, Probability, detail, fail, show, unknown, younger
from microsim.errors import UsageError, did_you_mean
from microsim.faults import FAULTS, NODE, RADIO, FaultKind
from microsim.messages.inputs import INPUTS
from microsim.robots.robot import Robot, sensor_of

if TYPE_CHECKING:
    from microsim.scenario.models import Scenario

CLOCK = "/clock"
MOST_DRAWN = 10_000  # faults of one run
STREAM = "chaos"
FARTHEST_M = 10.0  # that a drawn jump goes along each axis
_FITTING = {
    "sensor": "it is a fault of sensors",
    "radio": "it is a fault of the radio",
    "messages": "it is a fault of messages, whose target is a topic",
    "node": "it is a fault of the nodes that the run starts, whose target is `node`",
}
FORM = "TARGET:KIND@FROMs-TOs, such as camera_front:fail@3s-5s or gps:jump(10,0,0)@3s-9s"
_TEXT = re.compile(
    r"\s*(?P<target>[\w/]+)\s*:\s*(?P<kind>\w+)\s*(?:\((?P<numbers>[^()]*)\))?\s*@"
    r"\s*(?P<start>[0-9.]+)\s*s?\s*-\s*(?P<end>[0-9.]+)\s*s?\s*"
)
Seconds = Annotated[Finite, Field(ge=0, le=2**31)]


def _example(kind: FaultKind) -> str:
    return kind.example or f"gps:{kind.name}@3s-5s"


def _from_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = _TEXT.fullmatch(value)
    if found is None:
        raise ValueError(f"expected {FORM}, found {show(value)}")
    parts: dict[str, Any] = {"target": found["target"], "kind": found["kind"]}
    try:
        parts |= {"from_s": float(found["start"]), "to_s": float(found["end"])}
        if found["numbers"] is not None:
            parts |= _numbers(found["kind"], [float(number) for number in found["numbers"].split(",")])
    except ValueError:
        raise ValueError(f"expected {FORM}, found {show(value)}") from None
    return parts


def _numbers(kind: str, numbers: list[float]) -> dict[str, Any]:
    known = FAULTS.built_in.get(kind)
    if known is not None and known.of == "messages" and len(numbers) == 1:
        return {"delay_s" if known.takes_delay else "probability": numbers[0]}
    return {"offset_m": numbers}


def _kinds() -> str:
    return " ".join(f"{kind.name}: {kind.about}." for kind in FAULTS.built_in.values())


class Fault(Model):
    """A temporary fault. As text: `TARGET:KIND@FROMs-TOs`."""

    target: str = Field(
        min_length=1,
        description="A sensor: its name, or `robot/sensor` where several have it; a topic, such as `/rover/cmd_vel`; "
        "`radio`; or `node`: what `microsim run --with` started.",
    )
    kind: Annotated[str, Field(strict=True), WithJsonSchema({"type": "string", "enum": list(FAULTS.built_in)})] = Field(
        description=_kinds()
    )
    from_s: Seconds = Field(0.0, description="When it begins, simulated time [s].")
    to_s: Seconds = Field(description="When the fault ends [s].")
    offset_m: PointXYZ = Field((0.0, 0.0, 0.0), description="Offset of a GPS: east, north, up [m].")
    delay_s: Annotated[Seconds, Field(le=3600)] = Field(0.0, description="Delay of each message [s].")
    probability: Probability = Field(1.0, description="Probability that a message is affected.")

    _without_younger = younger("delay_s", "probability")

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
        if (kind.of == "radio") != (self.target == RADIO):
            raise ValueError("a blackout applies to the radio alone, and is its only fault: radio:blackout@3s-5s")
        if (kind.of == "messages") != self.target.startswith("/"):
            raise ValueError(f"{kind.name} and {self.target} do not fit: {_FITTING[kind.of]}, as in {_example(kind)}")
        if (kind.of == "node") != (self.target == NODE):
            raise ValueError(f"{kind.name} and {self.target} do not fit: {_FITTING[kind.of]}, as in {_example(kind)}")
        if self.target == CLOCK:
            raise ValueError(f"{CLOCK} cannot have faults; choose another topic")
        if kind.takes_delay != bool(self.delay_s):
            raise ValueError(f"`delay_s` belongs to a delay, and a delay needs it: {FAULTS.built_in['delay'].example}")
        if kind.of != "messages" and self.probability != 1.0:
            raise ValueError("only faults on messages have a `probability`")
        return self


FaultOrText = Annotated[Fault, BeforeValidator(_from_text)]


def resolved(fault: Fault, robots: Mapping[str, Robot], folders: Iterable[str] = ()) -> Fault:
    """With its target as robot/sensor; ValueError says why there is none."""
    if fault.target in (RADIO, NODE) or fault.target.startswith("/"):
        return fault  # a run reports topics that it does not have
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


class Chaos(Model):
    """Faults that the seed draws: which, where, when, how long. Another seed has others."""

    rate: Annotated[Finite, Field(ge=0, le=100)] = Field(
        description="Faults per simulated second: one at a random time in each 1/rate; 0: none."
    )
    kinds: tuple[Annotated[str, Field(strict=True)], ...] = Field(
        (),
        description="Which kinds; default: all of messages, sensors and the radio. `pause` and `kill` must be named.",
    )
    targets: tuple[Annotated[str, Field(strict=True, min_length=1)], ...] = Field(
        (), description="Only on these, written as in `faults`; default: on all that the kinds fit."
    )
    from_s: Seconds = Field(0.0, description="None begins before this time [s].")
    to_s: Seconds = Field(60.0, description="None begins after this time [s].")
    longest_s: Annotated[Finite, Field(gt=0, le=3600)] = Field(1.0, description="How long one may last [s].")
    longest_delay_s: Annotated[Finite, Field(gt=0, le=3600)] = Field(0.2, description="Largest delay of messages [s].")

    @field_validator("kinds")
    @classmethod
    def _known(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        folders = (info.context or {}).get("plugins", ())
        for index, name in enumerate(names):
            if FAULTS.find(name, folders) is None:
                fail([detail(unknown("fault", name, FAULTS.names(folders)), index, found=name)])
        return names

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.from_s >= self.to_s:
            raise ValueError(f"expected from_s below to_s, found {show(self.from_s)} and {show(self.to_s)}")
        if self.rate * (self.to_s - self.from_s) > MOST_DRAWN:
            raise ValueError(f"expected at most {MOST_DRAWN:,} faults in all; lower `rate`, or `to_s`")
        return self


def chaos_targets(scenario: Scenario) -> dict[str, list[str]]:
    """By kind: what the chaos of a scenario may concern."""
    chaos, folders = scenario.chaos, scenario.plugins
    assert chaos is not None
    names = chaos.kinds or [name for name, kind in FAULTS.built_in.items() if kind.of != "node"]
    found: dict[str, list[str]] = {}
    for name in names:
        kind = FAULTS.find(name, folders)
        assert kind is not None
        found[name] = [each for each in _targets(scenario, kind) if not chaos.targets or _is_one(each, chaos.targets)]
    return found


def _is_one(target: str, chosen: Sequence[str]) -> bool:
    return target in chosen or (not target.startswith("/") and target.partition("/")[2] in chosen)


def _targets(scenario: Scenario, kind: FaultKind) -> list[str]:
    if kind.of == "radio":
        return [RADIO] if scenario.radio.enabled and len(scenario.robots) > 1 else []
    if kind.of == "node":
        return [NODE]
    if kind.of == "messages":
        return list(robot_topics(scenario))
    return [f"{robot}/{name}" for robot, name, _, sensor in scenario.all_sensors if kind.suits(sensor)]


def robot_topics(scenario: Scenario) -> Iterator[str]:
    """Topics of sensors, and those that robots take."""
    for robot, name, block, sensor in scenario.all_sensors:
        for form in sensor.messages:
            if form.applies(block):
                yield sensor.topic(form, robot, name)
    kinds = INPUTS.all(scenario.plugins)
    for robot in scenario.robots:
        for kind in kinds:
            if kind.meant_for is None and kind.name in scenario.robots[robot].inputs:
                yield kind.of(robot)


def check_chaos(scenario: Scenario) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A problem for targets that there are not, or that no kind fits."""
    if scenario.chaos is None:
        return
    by_kind = chaos_targets(scenario)
    if not any(by_kind.values()):
        where = "targets" if scenario.chaos.targets else "kinds"
        there = sorted({each for name in by_kind for each in _targets(scenario, _kind(name, scenario))})
        yield f"none of these kinds fits any of them; there are: {', '.join(there) or 'none'}", ("chaos", where)


def _kind(name: str, scenario: Scenario) -> FaultKind:
    kind = FAULTS.find(name, scenario.plugins)
    assert kind is not None
    return kind


def drawn_faults(scenario: Scenario, seed: int) -> tuple[Fault, ...]:
    """Those that are written, and those that the seed draws."""
    chaos = scenario.chaos
    if chaos is None:
        return scenario.faults
    from microsim.engine.noise import stream_key

    key, targets = stream_key(seed, STREAM), {kind: found for kind, found in chaos_targets(scenario).items() if found}
    count = int(chaos.rate * (chaos.to_s - chaos.from_s))
    drawn = [_drawn(scenario, chaos, targets, key, index) for index in range(count)]
    return (*scenario.faults, *sorted(drawn, key=lambda fault: fault.from_s))


def _drawn(scenario: Scenario, chaos: Chaos, targets: Mapping[str, Sequence[str]], key: int, index: int) -> Fault:
    from microsim.engine.noise import uniforms

    (which, where), (when, span), (east, north), (delay, _) = (uniforms(key, index, part) for part in range(4))
    kind = _kind(list(targets)[int(which * len(targets))], scenario)
    target = targets[kind.name][int(where * len(targets[kind.name]))]
    begin = round(chaos.from_s + (index + when) / chaos.rate, 3)
    more: dict[str, Any] = {"delay_s": _some(delay, chaos.longest_delay_s)} if kind.takes_delay else {}
    if kind.takes_offset:
        more = {"offset_m": (*(round(FARTHEST_M * (2 * part - 1), 1) or 1.0 for part in (east, north)), 0.0)}
    end = round(begin + _some(span, chaos.longest_s), 3)
    fault = {"target": target, "kind": kind.name, "from_s": begin, "to_s": end, **more}
    return Fault.model_validate(fault, context={"plugins": scenario.plugins})


def _some(share: float, longest: float) -> float:
    return max(round(share * longest, 3), 0.001)


def refuse_faults(what: str, scenario: Scenario, *parts: str, can_draw: bool = True) -> None:
    """Faults of these parts, and all that are drawn unless `can_draw`, where they are not supported."""
    kinds = scenario.chaos.kinds if scenario.chaos is not None else ()
    if scenario.chaos is not None and (not can_draw or {_kind(name, scenario).of for name in kinds} & {*parts}):
        raise UsageError(f"{scenario.name} has `chaos`, which {what} does not support: leave it out")
    for index, fault in enumerate(scenario.faults):
        if _kind(fault.kind, scenario).of in parts:
            raise UsageError(f"faults[{index}]: {what} does not support {fault.target}:{fault.kind}: leave it out")
