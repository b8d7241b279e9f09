"""One run after another, in this process: the same in a worker, on a cluster and in a replay."""

from __future__ import annotations

import json
import re
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from microsim.errors import MicroSimError
from microsim.messages.outbox import Message
from microsim.missions import Mission, MissionPilot, load_mission
from microsim.missions.actions import RadioAction
from microsim.missions.expectations import RobotExpectation
from microsim.recording.inputs import as_text, packed, unpacked
from microsim.scenario import Scenario
from microsim.scenario.overrides import with_values
from microsim.simulation import Simulation
from microsim.sweep.metric import Value
from microsim.sweep.metrics import metric, watch
from microsim.sweep.tokens import mission_data
from microsim.sweep.trace import Run, Trace

_LONGEST_ERROR = 500  # characters


class Taken:
    """A run at tick 0, and the metrics that are taken of it. To be called with the messages of every tick."""

    def __init__(self, sim: Simulation, mission: Mission | None, metrics: Sequence[str]) -> None:
        self.pilot = None if mission is None else MissionPilot(sim, mission)
        self.run = Run(sim, self.pilot)
        self._watches = {name: watch(name, self.run) for name in metrics}
        self._looks = [each.look for each in self._watches.values() if each.look is not None]
        self._hears = [each.hear for each in self._watches.values() if each.hear is not None]
        self._trace = Trace(sim)

    def __call__(self, messages: Sequence[Message]) -> None:
        if self.pilot is not None:
            self.pilot(messages)
        for hear in self._hears:
            hear(messages)
        if self._looks and self.run.sim.tick and self._trace.add():
            self._look()

    def _look(self) -> None:
        block = self._trace.take()
        for look in self._looks:
            look(block)

    def values(self) -> dict[str, Value]:
        if self._trace.count:
            self._look()
        return {name: each.value() for name, each in self._watches.items()}


def fly(sim: Simulation, mission: Mission | None, duration: float | None, metrics: Sequence[str]) -> dict[str, Value]:
    """From tick 0 to the end; the metrics. Messages are made only where somebody needs them: four times as slow."""
    taken = Taken(sim, mission, metrics)
    ticks = ticks_of(sim, taken.pilot, duration)
    if needs_messages(mission, metrics):
        taken(sim.step(0))
        for _ in range(ticks):
            taken(sim.step())
    else:
        taken(())
        for _ in range(ticks):
            sim.advance()
            taken(())
    return taken.values()


def ticks_of(sim: Simulation, pilot: MissionPilot | None, duration: float | None) -> int:
    if duration is not None:
        return sim.clock.ticks_in(Fraction(str(duration)))
    assert pilot is not None  # a sweep has a mission or a duration
    return pilot.end


def needs_messages(mission: Mission | None, metrics: Sequence[str]) -> bool:
    chosen = [metric(name) for name in metrics]
    if any(each.needs_messages for each in chosen):
        return True
    if mission is None:
        return False
    is_judged = any(each.judges for each in chosen)
    about_messages = any(not isinstance(entry, RobotExpectation) for entry in mission.expect)
    return (is_judged and about_messages) or any(isinstance(entry, RadioAction) for entry in mission.do)


# ---- in a worker -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Order:
    """Everything a worker must know, as plain data: it may be on another machine."""

    scenario: str
    files: Mapping[str, bytes]
    mission: dict[str, Any] | None
    duration: float | None
    combinations: Sequence[Mapping[str, Any]]  # key path in the scenario -> value
    metrics: Sequence[str]
    version: str

    @staticmethod
    def of(
        scenario: Scenario,
        mission: Mission | None,
        duration: float | None,
        combinations: Sequence[Mapping[str, Any]],
        metrics: Sequence[str],
        version: str,
    ) -> Order:
        data, files = packed(scenario)
        flown = None if mission is None else mission_data(mission)
        return Order(as_text(data), files, flown, duration, combinations, metrics, version)

    def to_plain(self) -> dict[str, Any]:
        files = {name: b64encode(content).decode() for name, content in self.files.items()}
        return {**vars(self), "files": files}

    @staticmethod
    def from_plain(data: Mapping[str, Any]) -> Order:
        files = {name: b64decode(content) for name, content in data["files"].items()}
        return Order(**{**data, "files": files})


@dataclass(frozen=True)
class Failure:
    """A run that did not come to its end."""

    error: str
    is_final: bool  # it would fail again


class Flyer:
    """Flies runs of one sweep. The simulation is kept from seed to seed: a reset is exact, and quick."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._folder = tempfile.TemporaryDirectory(prefix="microsim-")
        plugins = json.loads(order.scenario)["plugins"]  # of the user who started the sweep
        self._base = unpacked(order.scenario, Path(self._folder.name), order.files, plugins)
        self._mission = None if order.mission is None else load_mission(order.mission)
        self._scenario: Scenario | None = None
        self._combination = -1
        self._sim: Simulation | None = None

    def close(self) -> None:
        self._folder.cleanup()

    def fly(self, combination: int, seed: int) -> list[Value] | Failure:
        try:
            sim = self._simulation(combination, seed)
            return list(fly(sim, self._mission, self._order.duration, self._order.metrics).values())
        except MicroSimError as error:
            self._sim = None
            return Failure(_one_line(str(error)), is_final=True)
        except Exception as error:  # whatever a plug-in raises ends its run and no other
            self._sim = None
            return Failure(_one_line(f"{type(error).__name__}: {error}"), is_final=False)

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
    """The same on every machine, as far as we can see to it: no address in memory."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", " ".join(text.split()))[:_LONGEST_ERROR]
