"""One run after another in this process: the same code in a worker, on a cluster and in a replay."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from microsim.errors import MicroSimError, UntrustedError, UsageError
from microsim.messages.outbox import Message
from microsim.parts.missions import Mission, MissionPilot, load_mission
from microsim.parts.missions.mission_file import RadioAction, RobotExpectation
from microsim.parts.sweep.metrics import Value, WatchedRun, all_metrics, checked, find_metric, has_meaning, watch
from microsim.plugin_errors import reporting
from microsim.recording.inputs import (
    controller_hash,
    made_by_generators,
    packed,
    plugin_hashes,
    unpacked,
    without_places,
)
from microsim.registry import is_trusted
from microsim.scenario import Scenario, load_scenario
from microsim.scenario.loading import with_values
from microsim.simulation import Simulation
from microsim.version import __version__

_LONGEST_ERROR = 500  # characters
_BLOCK_TICKS = 256  # sums are taken block by block, so their last bits depend on this number


class MetricRun:
    """A run at tick 0 and the metrics that measure it. Call it with the messages of each tick, or of `ticks_to_run`."""

    def __init__(self, sim: Simulation, mission: Mission | None, metrics: Sequence[str]) -> None:
        self.pilot = None if mission is None else MissionPilot(sim, mission)
        self.run = WatchedRun(sim, self.pilot)
        self._watches = {name: watch(name, self.run) for name in metrics}
        watches = [(f"metric {name}", each) for name, each in self._watches.items()]
        self._looks = [reporting(each.look, who, type(each)) for who, each in watches if each.look is not None]
        self._hears = [reporting(each.hear, who, type(each)) for who, each in watches if each.hear is not None]
        self._block_start, self._trace = sim.tick, sim.trace(_BLOCK_TICKS) if self._looks else {}

    def __call__(self, messages: Sequence[Message]) -> None:
        if self.pilot is not None:
            self.pilot(messages)
        for hear in self._hears:
            hear(messages)
        if self._looks and self.run.sim.tick - self._block_start == _BLOCK_TICKS:
            self._look()

    def ticks_to_run(self, at_most: int) -> int:
        """Ticks until it must be called again."""
        in_block = self.run.sim.tick - self._block_start if self._looks else 0
        at_most = 1 if self._hears else min(at_most, _BLOCK_TICKS - in_block)
        return at_most if self.pilot is None else self.pilot.ticks_to_run(at_most)

    def _look(self) -> None:
        """At the states since the last block."""
        sim = self.run.sim
        block = {robot: states[: sim.tick - self._block_start] for robot, states in self._trace.items()}
        self._block_start, self._trace = sim.tick, sim.trace(_BLOCK_TICKS)
        for look in self._looks:
            look(block)

    def values(self) -> dict[str, Value]:
        if self._looks and self.run.sim.tick > self._block_start:
            self._look()
        values = {name: reporting(each.value, f"metric {name}", type(each)) for name, each in self._watches.items()}
        return {name: checked(each, values[name]()) for name, each in self._watches.items()}


def run_one(
    sim: Simulation, mission: Mission | None, duration: float | None, metrics: Sequence[str]
) -> dict[str, Value]:
    """Run from tick 0 to the end and return the metrics. Messages, four times as slow, only if something needs them."""
    measured = MetricRun(sim, mission, metrics)
    end = ticks_of(sim, measured.pilot, duration)
    has_messages = needs_messages(sim.scenario, mission, metrics)
    measured(sim.step(0) if has_messages else ())
    while sim.tick < end:
        ticks = measured.ticks_to_run(end - sim.tick)
        if has_messages:
            measured(sim.step(ticks))
        else:
            sim.advance(ticks)
            measured(())
    return measured.values()


def ticks_of(sim: Simulation, pilot: MissionPilot | None, duration: float | None) -> int:
    if duration is not None:
        return sim.clock.ticks_in(Fraction(str(duration)))
    assert pilot is not None  # a sweep has a mission or a duration
    return pilot.end


def needs_messages(scenario: Scenario, mission: Mission | None, metrics: Sequence[str]) -> bool:
    if scenario.controllers:  # which look at them
        return True
    chosen = [find_metric(name, scenario.plugins) for name in metrics]
    if any(each.needs_messages or each.hear is not None for each in chosen):
        return True
    if mission is None:
        return False
    is_judged = any(each.judges for each in chosen)
    about_messages = any(not isinstance(entry, RobotExpectation) for entry in mission.expect)
    return (is_judged and about_messages) or any(isinstance(entry, RadioAction) for entry in mission.do)


# ---- in a worker -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SweepOrder:
    """Everything a worker needs, as plain data: it may be on another machine."""

    scenario: str
    files: Mapping[str, bytes]
    mission: dict[str, Any] | None
    duration: float | None
    combinations: Sequence[Mapping[str, Any]]  # key path in the scenario -> value
    metrics: Sequence[str]

    def to_plain(self) -> dict[str, Any]:
        files = {name: b64encode(content).decode() for name, content in self.files.items()}
        return {**vars(self), "files": files}

    @staticmethod
    def from_plain(data: Mapping[str, Any]) -> SweepOrder:
        files = {name: b64decode(content) for name, content in data["files"].items()}
        return SweepOrder(**{**data, "files": files})


@dataclass(frozen=True)
class RunFailure:
    """A run that did not reach its end."""

    error: str
    is_final: bool  # it would fail again


def _plugin_folders(scenario: str) -> list[str]:
    try:
        return list(json.loads(scenario)["plugins"])
    except (ValueError, KeyError, TypeError):
        return []  # what is wrong with the scenario is reported where it is read


class SweepRunner:
    """Runs of one sweep. The simulation is kept from seed to seed: a reset is exact, and fast."""

    def __init__(self, order: SweepOrder) -> None:
        self._order = order
        self._folder = tempfile.TemporaryDirectory(prefix="microsim-")
        plugins = _plugin_folders(order.scenario)  # of the user who started the sweep
        self._base = unpacked(order.scenario, Path(self._folder.name), order.files, plugins, keeps_controllers=True)
        self._mission = None if order.mission is None else load_mission(order.mission)
        self._scenario: Scenario | None = None
        self._combination = -1
        self._sim: Simulation | None = None

    def close(self) -> None:
        self._folder.cleanup()

    def run(self, combination: int, seed: int) -> list[Value] | RunFailure:
        try:
            sim = self._simulation(combination, seed)
            return list(run_one(sim, self._mission, self._order.duration, self._order.metrics).values())
        except MicroSimError as error:
            self._sim = None
            return RunFailure(_one_line(str(error)), is_final=True)
        except Exception as error:  # an error in a plug-in ends its run and no other
            self._sim = None
            return RunFailure(_one_line(f"{type(error).__name__}: {error}"), is_final=False)

    def _simulation(self, combination: int, seed: int) -> Simulation:
        if self._scenario is None or combination != self._combination:
            self._scenario = with_values(self._base, self._order.combinations[combination])
            self._combination, self._sim = combination, None
        if self._sim is None or self._sim.scenario is not self._scenario:  # a mission may have reconfigured it
            self._sim = Simulation(self._scenario, seed)
        else:
            self._sim.reset(seed)
        return self._sim


def _one_line(text: str) -> str:
    """The same on every machine: without addresses in memory."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", " ".join(text.split()))[:_LONGEST_ERROR]


_HASH_DIGITS, _CHECK_DIGITS = 16, 8
_PREFIX = "microsim-"
_OWN = ("scenario", "controller", "mission", "seed", "duration")
Loaded = TypeVar("Loaded", Scenario, Mission, str)


@dataclass(frozen=True)
class TokenSource:
    """The name of a scenario or a mission, and a hash of its content."""

    name: str
    content: str

    def __str__(self) -> str:
        return f"{quote(self.name, safe='/')}@{self.content}"


@dataclass(frozen=True)
class Token:
    scenario: TokenSource
    mission: TokenSource | None
    seed: int
    duration: float | None
    changes: Mapping[str, Any] = field(default_factory=dict)  # full key path in the scenario -> value
    version: str = __version__
    controllers: tuple[TokenSource, ...] = ()  # beside those of the scenario, each as after `--controller`

    def __str__(self) -> str:
        parts: dict[str, str] = {"scenario": str(self.scenario)}
        if self.controllers:
            parts["controller"] = "+".join(map(str, self.controllers))
        if self.mission is not None:
            parts["mission"] = str(self.mission)
        parts["seed"] = str(self.seed)
        if self.duration is not None:
            parts["duration"] = repr(self.duration)
        parts |= {
            path: quote(json.dumps(value, separators=(",", ":")), safe="") for path, value in self.changes.items()
        }
        text = ":".join([f"{_PREFIX}{self.version}", *(f"{key}={value}" for key, value in parts.items())])
        return f"{text}:check={_checksum(text)}"


def read_token(text: str) -> Token:
    """UsageError if it is malformed or incomplete."""
    text = text.strip()
    body, found, checksum = text.rpartition(":check=")
    if not found or not body.startswith(_PREFIX):
        raise UsageError(f"expected a token that begins with {_PREFIX} and ends with check=…, found {text[:60]!r}")
    if checksum != _checksum(body):
        raise UsageError("the token is incomplete or was changed: its checksum does not match")
    first, *rest = body.split(":")
    try:
        parts = dict(part.split("=", 1) for part in rest)
        changes = {path: json.loads(unquote(value)) for path, value in parts.items() if path not in _OWN}
        return Token(
            _source(parts["scenario"]),
            _source(parts["mission"]) if "mission" in parts else None,
            int(parts["seed"]),
            float(parts["duration"]) if "duration" in parts else None,
            changes,
            first.removeprefix(_PREFIX),
            tuple(map(_source, parts["controller"].split("+"))) if "controller" in parts else (),
        )
    except (KeyError, ValueError) as error:
        raise UsageError(f"the token cannot be read: {error}") from None


def _source(text: str) -> TokenSource:
    name, found, content = text.rpartition("@")
    if not found:
        raise ValueError(f"no hash in {text!r}")
    return TokenSource(unquote(name), content)


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_CHECK_DIGITS]


# ---- the content of a source -----------------------------------------------------------------------------------------


def content_of(data: Any) -> str:
    """A hash of plain data: the same for two files that mean the same."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]


def scenario_content(scenario: Scenario) -> str:
    """Everything the scenario resolves to, with files and the code of plug-ins, whatever folder they are in."""
    data = without_places(packed(scenario)[0])  # files are named by their content
    if data.get("world"):
        data["world"]["path"] = ""  # its hash is another key
    return content_of([data, plugin_hashes(scenario), *made_by_generators(scenario)])


def mission_data(mission: Mission) -> dict[str, Any]:
    """Plain data that `load_mission` accepts."""
    return mission.model_dump(mode="json", by_alias=True, exclude_unset=True)


def mission_content(mission: Mission) -> str:
    """What is done and expected; neither its name nor its default scenario and seed."""
    data = mission_data(mission)
    return content_of({key: data[key] for key in ("duration", "do", "expect") if key in data})


def file_of(controller: str) -> Path:
    """Of what is written after `--controller`."""
    return Path(controller) if Path(controller).is_file() else Path(controller.partition("=")[2] or controller)


def controller_content(controller: str) -> str:
    """A hash of its code, and of what that imports."""
    return controller_hash(file_of(controller))[:_HASH_DIGITS]


def _checked_file(controller: str) -> str:
    file = file_of(controller)
    if not file.is_file():
        raise UsageError(f"{file}: no such file")
    if not is_trusted(file.parent):
        raise UsageError(f"controllers are code, and run only if you name them: add --controller {controller}")
    return controller


# ---- the run of a token ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replayable:
    """The run of a token, ready at tick 0."""

    token: Token
    sim: Simulation
    mission: Mission | None

    def metric_run(self) -> MetricRun:
        """With every metric that has a meaning here."""
        run, has_mission = WatchedRun(self.sim, None), self.mission is not None
        names = [
            name
            for name, metric in all_metrics(self.sim.scenario.plugins).items()
            if (has_mission if metric.judges else has_meaning(name, run))
        ]
        return MetricRun(self.sim, self.mission, names)


def from_token(
    text: str, scenario: str | None = None, mission: str | None = None, controllers: Sequence[str] = ()
) -> Replayable:
    """`scenario`, `mission`, `controllers`: where they are, if not where the token says; with the same content."""
    token = read_token(text)
    world = _loaded(load_scenario, token, token.scenario, scenario, "scenario", scenario_content)
    if controllers and len(controllers) != len(token.controllers):
        raise UsageError(f"this token is of a run with {len(token.controllers)} controllers, found {len(controllers)}")
    places = [controllers[index] if controllers else None for index in range(len(token.controllers))]
    pairs = zip(token.controllers, places, strict=True)
    files = [_loaded(_checked_file, token, source, place, "controller", controller_content) for source, place in pairs]
    world = load_scenario(world, controllers=files)
    steps = None
    if token.mission is not None:
        steps = _loaded(load_mission, token, token.mission, mission, "mission", mission_content)
    elif mission is not None:
        raise UsageError("this token is of a run without a mission; leave out --mission")
    try:
        return Replayable(token, Simulation(with_values(world, token.changes), token.seed), steps)
    except UsageError as error:
        raise UsageError(f"the token does not fit its scenario: {error}") from None


def _loaded(
    load: Callable[[str], Loaded],
    token: Token,
    source: TokenSource,
    given: str | None,
    what: str,
    content_of_it: Callable[[Loaded], str],
) -> Loaded:
    """From where it was given; by default by its name, which is enough for what is shipped or in this folder."""
    try:
        found = load(source.name if given is None else given)
    except UntrustedError:
        raise
    except MicroSimError as error:
        if given is not None:
            raise
        raise UsageError(
            f"the token's {what} {source.name!r} cannot be loaded; say where it is with --{what}: {error}"
        ) from None
    content = content_of_it(found)
    if content != source.content:
        is_same = token.version == __version__
        by = "" if is_same else f"; the token was made by microsim {token.version}, this is {__version__}"
        raise UsageError(
            f"the {what} {source.name!r} has changed since the token was made (its content was {source.content}, now "
            f"it is {content}){by}: this would be another run"
        )
    return found
