"""`SimUnderTest`: a simulation with assertions over time, which records itself and has ROS 2 nodes beside it."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from microsim.engine.components import X, Y, Z
from microsim.errors import MicroSimError, UsageError, unknown
from microsim.messages.outbox import Message, Messages
from microsim.parts.missions import Mission, MissionPilot, load_mission
from microsim.parts.missions.judge import clearance_cells
from microsim.processes import StartedProcess
from microsim.recording.recorder import Recorder
from microsim.runner import Pilot, Runner
from microsim.scenario import Scenario
from microsim.simulation import Simulation

if TYPE_CHECKING:
    from microsim.parts.ros2.microsim_node import MicroSimNode

_END_S = 5.0  # for a node to end by itself
_LOG_TAIL = 2000  # characters of a node's output in a failure


@dataclass(frozen=True)
class GoldenDigests:
    """Digests that runs must have, a file each."""

    folder: Path
    test: str
    is_updating: bool = False

    def check(self, sim: Simulation, name: str) -> None:
        __tracebackhide__ = True
        file = self.folder / f"{self.test}{'-' + name if name else ''}.json"
        found = {"scenario": sim.scenario.name, "seed": sim.seed, "ticks": sim.tick, "digest": sim.digest()}
        if self.is_updating:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
            return
        update = "`pytest --update-digests` stores this one"
        if not file.is_file():
            raise AssertionError(f"no digest is stored in {file}; {update}: {found['digest']}")
        try:
            expected = dict(json.loads(file.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            raise AssertionError(f"{file} is damaged: expected a digest in JSON; {update}") from None
        if expected != found:
            lines = [f"  {key}: expected {expected.get(key)}, found {found[key]}" for key in found]
            other = [line for line, key in zip(lines, found, strict=True) if expected.get(key) != found[key]]
            raise AssertionError("\n".join([f"the run differs from {file}; if that is intended, {update}:", *other]))


@dataclass(frozen=True)
class Invariant:
    """What must hold at every tick from `since_s` on."""

    problem: Callable[[], str]  # what is wrong now; empty: nothing
    since_s: float


def _problem(node: StartedProcess) -> str:
    """Why it does not run any more; empty: it does."""
    code = node.process.poll()
    return "" if code is None else f"`{node.command}` ended with exit code {code}{_written(node)}"


def _written(node: StartedProcess) -> str:
    text = node.output().strip()
    return f"; its output ends with:\n{text[-_LOG_TAIL:]}" if text else " and printed nothing"


class SimUnderTest(Simulation):
    """A `Simulation` with assertions over time. `pilot` is called with each tick's messages, before the next tick."""

    def __init__(
        self,
        scenario: Scenario | str | Path | Mapping[str, Any],
        seed: int | None,
        folder: Path,
        digests: GoldenDigests,
    ) -> None:
        super().__init__(scenario, seed)
        self.folder, self._digests = folder, digests
        self.pilot: Pilot | None = None
        self.runner = Runner(self, 0.0, self._after_tick)
        self._recorder = Recorder(folder / "recording", self)
        self._invariants: list[Invariant] = []
        self._violation = ""  # what was not as required
        self._is_running = False
        self._goal: Callable[[], Any] | None = None
        self._piloted = -1  # the tick whose messages the pilot received last
        self._node: MicroSimNode | None = None
        self._processes: list[StartedProcess] = []

    # ---- time --------------------------------------------------------------------------------------------------------

    @property
    def time_s(self) -> float:
        return self.time_ns / 1e9

    def step(self, ticks: int = 1) -> Messages:
        """As in `Simulation`; then what `always` and `never_closer_than` require is asserted."""
        __tracebackhide__ = True
        messages = super().step(ticks)
        if self._violation and not self._is_running:
            raise AssertionError(self._violation)
        return messages

    def run(self, seconds: float) -> None:
        """Let simulated time pass, with the pilot and the nodes that were started."""
        __tracebackhide__ = True
        self._run(self._ticks(seconds))

    def _run(self, ticks: int) -> None:
        """Stops at what is violated, and raises it here: the frames of a run say nothing about it."""
        __tracebackhide__ = True
        self.runner.is_stopping, self._is_running = False, True
        try:
            self.runner.run(ticks)
        finally:
            self._is_running = False
        if self._violation:
            raise AssertionError(self._violation)

    def _ticks(self, seconds: float) -> int:
        if not 0.0 <= seconds < 2**31:
            raise UsageError(f"expected simulated seconds, 0 or more; found {seconds!r}")
        return self.clock.ticks_in(Fraction(str(seconds)))

    def _after_tick(self, messages: Sequence[Message]) -> None:
        if self.pilot is not None and self.tick != self._piloted:
            self._piloted = self.tick
            self.pilot(messages)
        for process in self._processes:
            if problem := _problem(process):
                self._violate(f"at {self.time_s:.3f} s: {problem}")
        if self._goal is not None and self._goal():
            self.runner.stop()

    # ---- assertions over time ----------------------------------------------------------------------------------------

    def eventually(self, condition: Callable[[], Any], within: float, about: str = "") -> float:
        """Run until the condition is true, for so many simulated seconds at most, else fail. Returns the time [s]."""
        __tracebackhide__ = True
        start_s, ticks = self.time_s, self._ticks(within)
        self._goal = condition
        try:
            self._run(ticks)
        finally:
            self._goal = None
        if not self.runner.is_stopping:
            where = "; ".join(f"{robot}: {self._place(robot)}" for robot in self.robots)
            what = about or _name_of(condition)
            raise AssertionError(f"not true within {within:g} s from {start_s:.3f} s on: {what}; now {where}")
        return self.time_s

    def always(self, condition: Callable[[], Any], about: str = "") -> None:
        """From now on, the condition must be true at every tick."""
        __tracebackhide__ = True
        what = about or _name_of(condition)
        self._require(lambda: "" if condition() else f"no longer true: {what}")

    def never_closer_than(self, robot: str, metres: float, to: str | Sequence[float] | None = None) -> None:
        """From now on, a robot's base_link must keep this distance.

        `to`: a robot, a place (x, y) or (x, y, z), or by default occupied cells and the edge of the map.
        """
        __tracebackhide__ = True
        self.model(robot)
        distance, name = self._distance(robot, to)
        text = f"{robot} is {{:.3f}} m away from {name}, expected {metres:g} m or more"
        self._require(lambda: text.format(gap) if not (gap := distance()) >= metres else "")

    def assert_digest(self, name: str = "") -> None:
        """The digest must be the stored one (`digests/` beside the test); `pytest --update-digests` stores it."""
        __tracebackhide__ = True
        self._digests.check(self, name)

    def fly(self, mission: str | Path | Mapping[str, Any] | Mission) -> None:
        """Run a mission from the start; fails unless its expectations are met."""
        __tracebackhide__ = True
        if self.tick:
            raise UsageError(f"a mission begins at time 0, and the simulation is at {self.time_s:.3f} s")
        pilot = MissionPilot(self, load_mission(mission))
        self.pilot = pilot
        self._run(pilot.end)
        violations = pilot.violations()
        if violations:
            raise AssertionError("\n".join([f"mission {pilot.mission.name}:", *violations]))

    def _require(self, problem: Callable[[], str]) -> None:
        __tracebackhide__ = True
        if now := problem():
            raise AssertionError(f"at {self.time_s:.3f} s: {now}")
        self._invariants.append(Invariant(problem, self.time_s))
        if self._look not in self.on_tick:
            self.on_tick.append(self._look)

    def _look(self, transcript: bytes) -> None:
        for each in self._invariants if not self._violation else ():
            if problem := each.problem():
                since = f" (required since {each.since_s:.3f} s)" if each.since_s else ""
                self._violate(f"at {self.time_s:.3f} s: {problem}{since}")
                return

    def _violate(self, text: str) -> None:
        self._violation = text
        self.runner.stop()

    def _distance(self, robot: str, to: str | Sequence[float] | None) -> tuple[Callable[[], float], str]:
        if to is None:
            world = self.world
            return lambda: clearance_cells(world, *self.rows(robot)[:2]) * world.cell_m, "what is in the way"
        if isinstance(to, str):
            if to not in self.robots or to == robot:
                others = [each for each in self.robots if each != robot]
                raise UsageError(unknown("no other robot", repr(to), to, others))
            return lambda: math.dist(self._xyz(robot), self._xyz(to)), to
        place = tuple(map(float, to))
        if len(place) not in (2, 3):
            raise UsageError(f"expected a place (x, y) or (x, y, z), found {to!r}")
        return lambda: math.dist(self._xyz(robot)[: len(place)], place), f"({', '.join(f'{each:g}' for each in place)})"

    def _xyz(self, robot: str) -> tuple[float, float, float]:
        rows = self.rows(robot)
        return rows[X], rows[Y], rows[Z]

    def _place(self, robot: str) -> str:
        return "({:.2f}, {:.2f}, {:.2f})".format(*self._xyz(robot))

    # ---- a ROS 2 node beside the run ---------------------------------------------------------------------------------

    def start_node(
        self, *command: str, rtf: float = 1.0, subscribes: bool = True, timeout_s: float = 30.0
    ) -> StartedProcess:
        """Start a program with a ROS 2 node; from now on the simulation is on ROS 2, at `rtf` times real time.

        Waits until the program has subscribed to a topic of the simulation, unless `subscribes` is false. It is stopped
        at the end of the test. If it ends before, the test fails with the end of its output.
        """
        if not command:
            raise UsageError('expected a command, such as start_node(sys.executable, "controller.py")')
        node = self._connected()
        self.runner.set_rtf(rtf)
        log = self.folder / f"node{len(self._processes) + 1}.log"
        process = StartedProcess(command, {**os.environ, "PYTHONUNBUFFERED": "1"}, log)
        self._processes.append(process)
        give_up_s = self.runner.clock.now() + timeout_s
        before = node.subscribers
        while subscribes and node.subscribers <= before:
            node.transport.poll(0.02)
            if problem := _problem(process):
                raise AssertionError(problem)
            if self.runner.clock.now() > give_up_s:
                what = f"`{process.command}` has not subscribed to a topic of the simulation within {timeout_s:g} s"
                raise AssertionError(what + _written(process))
        return process

    def _connected(self) -> MicroSimNode:
        if self._node is None:
            from microsim.parts.ros2.microsim_node import MicroSimNode
            from microsim.parts.ros2.node_parameters import ScenarioParameters
            from microsim.parts.ros2.transports import open_transport

            # tests side by side do not meet; the nodes that are started inherit it
            os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
            os.environ.setdefault("ROS_DOMAIN_ID", str(1 + os.getpid() % 100))
            parameters = ScenarioParameters(self.scenario)
            self._node = MicroSimNode(open_transport(), self.runner, parameters)
        return self._node

    # ---- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the nodes that were started, and finish the recording."""
        for process in self._processes:
            process.end(_END_S)
        self._processes = []
        if self._node is not None:
            self._node.leave()
            self._node.transport.close()
            self._node = None
        self._recorder.close()

    def save_artefacts(self, folder: Path, failure: str) -> list[str]:
        """Move the recording into a folder, beside its plot, its page and what failed; a line about each."""
        self.close()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "failure.txt").write_text(failure + "\n", encoding="utf-8")
        for each in sorted(self.folder.iterdir()):
            shutil.move(str(each), folder / each.name)
        return [f"artefacts in {folder}:", *(f"  {line}" for line in self._described(folder))]

    def _described(self, folder: Path) -> Iterator[str]:
        from microsim.parts.view.artefacts import page_of, write_plot

        recording = folder / self._recorder.folders[-1].name
        yield f"{recording.name}: microsim replay {recording} --open"
        yield from [self._recorder.error] if self._recorder.error else []
        makers: dict[str, Callable[[Path, Path, Sequence[str]], object]] = {"plot.png": write_plot, "run.html": page_of}
        for name, make in makers.items():
            try:
                make(recording, folder / name, self.scenario.plugins)
                yield name
            except (MicroSimError, OSError) as error:
                yield f"no {name}: {error}"
        yield from (log.name for log in sorted(folder.glob("node*.log")))


def _name_of(condition: Callable[[], Any]) -> str:
    """Its source where it is one line, as of a lambda in a call; else its name."""
    import inspect

    try:
        lines = inspect.getsource(condition).strip().splitlines()
    except (OSError, TypeError):
        lines = []
    is_lambda = getattr(condition, "__name__", "") == "<lambda>"
    return lines[0] if is_lambda and len(lines) == 1 else getattr(condition, "__name__", repr(condition))
