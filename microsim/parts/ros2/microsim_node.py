"""The node `microsim`: a running simulation on a transport. `read_start` reads what the user set for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from microsim.errors import MicroSimError, PluginError, UsageError, did_you_mean, unknown
from microsim.gate_checks import check_gates
from microsim.messages import encoders
from microsim.messages.checked import WireError, decode_checked
from microsim.messages.inputs import INPUTS, InputKind, stamp_of
from microsim.messages.outbox import Message
from microsim.messages.topics import TOPICS
from microsim.messages.type_files import find_type
from microsim.parts.ros2.lockstep import Lockstep
from microsim.parts.ros2.node_parameters import ScenarioParameters
from microsim.parts.ros2.node_process import NodeProcess
from microsim.parts.ros2.sim_services import MAX_STEPS, SimServices, SimulationInterfaces
from microsim.parts.ros2.transport import MissingTypeError, Parameter, Publisher, Transport, Value
from microsim.plugin_errors import plugin_error, plugin_errors
from microsim.registry import origin_of
from microsim.runner import Runner, Watcher
from microsim.scenario import Scenario, load_scenario
from microsim.scenario.gates import Gate
from microsim.scenario.loading import at_seed
from microsim.simulation import Simulation

_MOST_WAITING = 10_000  # inputs for the next tick, while the run is paused
_QUIET_S = 1.0  # at most one warning of a kind in this time
_RENAMED = {"camera_hz": "drone.camera.hz"}  # PRD 5.4 calls the first deprecated
_REMOVED = {  # of the contract; PRD 5.4 replaces it
    "sensors.camera_noise_u8": "drone.camera.noise.blur_sigma_px and drone.camera.noise.color_jitter"
}
# parameters that do not belong to a scenario
_OF_STEPPING = ("ticks_per_step", "step_waits_for")
OWN_PARAMETERS = ("scenario", "seed", "real_time_factor", "use_sim_time", "stamped_cmd_vel", *_OF_STEPPING)


class Gatekeeper(Protocol):
    """What messages and inputs of a node go through: its lockstep, or what only watches."""

    def sent(self, messages: Sequence[Message]) -> Sequence[Message]: ...

    def arrived(self, topic: str, stamp: int | None, deliver: Callable[[], None]) -> None: ...

    def status(self) -> tuple[int, str, dict[str, str]]: ...


class MicroSimNode:
    """Publishes the simulation's messages, takes commands, and offers services and parameters."""

    def __init__(
        self,
        transport: Transport,
        runner: Runner,
        settings: ScenarioParameters,
        takes_inputs: bool = True,
    ) -> None:
        """`takes_inputs` false: no commands from topics, as in a replay, where only the pilot commands."""
        self.transport, self.runner, self.settings = transport, runner, settings
        self._takes_inputs, self._is_resetting = takes_inputs, False
        self.malformed = 0  # messages that could not be read
        self._publishers: list[Publisher] = []
        self._publish: dict[str, Callable[[bytes], None]] = {}
        self._missing: set[str] = set()
        self._heard: set[str] = set()
        self._last_warning_s: dict[str, float] = {}
        self._counted: dict[str, int] = {}  # what the simulation had ignored when we last looked
        self._lateness = Lateness()
        self.lockstep: Gatekeeper | None = None
        self.processes: NodeProcess | None = None  # that the run started; faults stop and kill them
        self._subscribe()
        self._set_gates()
        self.services = SimServices(self)
        SimulationInterfaces(self)
        for why, names in self.services.missing.items():  # one warning for each package that is not installed
            self.warn(f"not offered: {', '.join(names)}: {why}")
        self._declare()
        runner.sources.append(self._poll)
        runner.gates.append(self._may_step)
        runner.checks.append(check_gates)
        runner.start_changes.append(self._at_reset)
        warn = partial(transport.log, "warn")
        runner.listen(
            messages=self.publish, warnings=warn, timing=self._lateness.measure, restarts=self._follow_restart,
            jumps=self._follow_jump,
        )  # fmt: skip
        runner.watchers.append(Watcher(1.0, self._publish_diagnostics))
        self._advertise()
        transport.poll()  # announces all endpoints at once

    def leave(self) -> None:
        """The run continues without its inputs, and waits for no node."""
        self.runner.sources.remove(self._poll)
        self.runner.gates.remove(self._may_step)

    @property
    def sim(self) -> Simulation:
        return self.runner.sim

    def warn(self, text: str) -> None:
        """To ROS 2 and to the log of the run."""
        self.transport.log("warn", text)
        self.runner.note("warn", text)

    @property
    def subscribers(self) -> int:
        """To all topics together."""
        return sum(each.subscribers for each in self._publishers)

    def _poll(self, timeout_s: float) -> None:
        action = self.services.action
        if action is not None and action.current is not None:
            self.transport.poll(0.0)
            if action.advance():
                return
        self.transport.poll(timeout_s)

    # ---- topics -----------------------------------------------------------------------------------------------------

    def _set_gates(self) -> None:
        """Of the scenario that runs now. A replay has its inputs already."""
        gates = self.sim.scenario.lockstep if self._takes_inputs else ()
        check_gates(self.sim)
        self.lockstep = None
        if gates:
            self.use_gates(gates)

    def use_gates(self, gates: Sequence[Gate]) -> Lockstep:
        """From now on, time stops at these."""
        self.lockstep = lockstep = Lockstep(gates, self.runner, self.transport, self._send, self.warn)
        return lockstep

    def _may_step(self) -> bool:
        return not isinstance(self.lockstep, Lockstep) or self.lockstep.may_step()

    def observe(self, watcher: Gatekeeper) -> None:
        """Have messages and inputs go through it; no gate waits any more."""
        self.lockstep = watcher

    def publish(self, messages: Sequence[Message]) -> None:
        if self.processes is not None:
            presence = self.processes.look(self.sim)
            if isinstance(self.lockstep, Lockstep):
                self.lockstep.follow(presence)
        self._send(messages if self.lockstep is None else self.lockstep.sent(messages))

    def _send(self, messages: Iterable[Message]) -> None:
        publish = self._publish
        for message in messages:
            if message.topic in publish:
                publish[message.topic](message.cdr)

    def _advertise(self) -> None:
        """A publisher for every topic the simulation sends on."""
        diagnostics = TOPICS["diagnostics"]
        for topic, (type_name, qos) in {**self.sim.topics, "/diagnostics": (diagnostics.type, diagnostics.qos)}.items():
            if topic in self._publish or topic in self._missing:
                continue
            try:
                self._publishers.append(self.transport.publisher(topic, type_name, qos))
                self._publish[topic] = self._publishers[-1].publish
            except MissingTypeError as error:
                self._missing.add(topic)
                self.warn(f"{topic} is not published: {error}")

    def _subscribe(self) -> None:
        sim = self.sim
        kinds = INPUTS.all(sim.scenario.plugins)
        for robot in sim.robots if self._takes_inputs else ():
            for kind in kinds:
                if kind.is_taken_by(sim, robot):
                    self._listen(kind, robot)

    def _listen(self, kind: InputKind, robot: str) -> None:
        topic, expected = kind.of(robot), kind.type_for(self.sim)
        if topic in self._heard:
            return  # subscribed to for a world before this one
        if origin_of(kind) is not None and not find_type(expected):
            raise plugin_error(f"there is no message type {expected!r}", f"input {kind.name}", kind)
        self._heard.add(topic)

        def on_message(cdr: bytes) -> None:
            try:
                message = decode_checked(expected, cdr)
            except WireError as error:
                self._refuse(topic, f"ignored a message that is not a valid {expected}: {error}")
                return
            self.services.arrived.add(topic)
            if self.lockstep is None:
                self._take(kind, robot, message)
            else:
                self.lockstep.arrived(topic, stamp_of(message), partial(self._take, kind, robot, message))

        try:
            self.transport.subscribe(topic, expected, kind.qos, on_message)
        except MissingTypeError as error:
            self.warn(f"{topic} is not subscribed to: {error}")

    def _take(self, kind: InputKind, robot: str, message: Any) -> None:
        topic = kind.of(robot)
        if len(self.sim.waiting) >= _MOST_WAITING:
            self._warn(topic, f"{topic}: ignored: {_MOST_WAITING:,} inputs already wait for the next tick")
            return
        try:
            with plugin_errors(f"input {kind.name}", kind):
                is_ignored = robot in self.sim.robots and not kind.take(self.sim, robot, message)
            if is_ignored:
                counters, before = dict(self.sim.counters), self._counted
                self._counted = counters
                why = ", ".join(reason for reason, count in counters.items() if count != before.get(reason))
                self._warn(topic, f"{topic}: ignored: {why}; so far {counters}")
                self.runner.note("warn", f"{topic}: ignored: {why}", f"ignored: {why}")
        except PluginError:
            raise
        except MicroSimError as error:
            self._refuse(topic, f"ignored: {error}")

    def _refuse(self, topic: str, text: str) -> None:
        self.malformed += 1
        self._warn(topic, f"{topic}: {text}")
        self.runner.note("warn", f"{topic}: {text}", f"malformed {topic}")

    def _warn(self, kind: str, text: str) -> None:
        """At most once a second of each kind."""
        now = self.runner.clock.now()
        if now - self._last_warning_s.get(kind, -math.inf) >= _QUIET_S:
            self._last_warning_s[kind] = now
            self.transport.log("warn", text)

    def _publish_diagnostics(self) -> None:
        """Figures about wall time, outside the digest."""
        publish, runner, sim = self._publish.get("/diagnostics"), self.runner, self.sim
        if publish is None:
            return
        links = sim.radio.links if sim.radio else []
        values = {
            "real_time_factor": f"{self._lateness.rtf(runner):.4f}",
            **self._lateness.figures(),
            "paused": str(runner.paused).lower(),
            "radio_queue": str(sum(len(link.queue) for link in links)),
            "ignored_inputs": str(sum(sim.counters.values())),
            "malformed_messages": str(self.malformed),
        }
        entries: dict[str, tuple[int, str, Mapping[str, str]]] = {"microsim": (0, "ok", values)}
        if self.lockstep is not None:
            entries["microsim lockstep"] = self.lockstep.status()
        publish(encoders.diagnostics(sim.time_ns, entries))

    # ---- control ----------------------------------------------------------------------------------------------------

    def _at_reset(self, start: Scenario) -> Scenario:
        """With the parameters that were set for this reset."""
        self.settings.follow(start)
        if refusal := self.settings.use_pending(self.sim.next_seed):
            self.warn(f"what was set for this reset no longer fits and is not used: {refusal}")
        self._is_resetting = True
        return self.settings.scenario

    def _follow_restart(self, sim: Simulation) -> None:
        """Advertise before the first messages go out."""
        if not self._is_resetting:  # another scenario was loaded
            self.settings = ScenarioParameters(sim.scenario)
            self._subscribe()
            self._set_gates()
        self._is_resetting = False
        self._advertise()
        self._show_parameters()

    def entities_changed(self) -> None:
        """Robots were spawned or deleted. Topics of deleted ones stay advertised and fall silent."""
        self._subscribe()
        self._advertise()

    def _follow_jump(self) -> None:
        """The simulation was put into another moment of its run, perhaps with other robots and settings."""
        self.settings.follow(self.sim.scenario)
        self.entities_changed()
        self._show_parameters()

    def _show_parameters(self) -> None:
        sim = self.sim
        declared = {name: value for name, value in self.settings.values().items() if name in self._declared}
        self.transport.set_parameters({**declared, "scenario": sim.scenario.name, "seed": sim.seed})

    # ---- parameters -------------------------------------------------------------------------------------------------

    def _declare(self) -> None:
        speed = "Simulated seconds per second; 0: as fast as possible."
        ticks = "Ticks that one call of /sim/step_once advances."
        waits = "Topics with commands, separated by spaces: a step waits for a message on each. Empty: for none."
        scenario = self.sim.scenario
        own = [
            Parameter("scenario", scenario.name, "Name of the scenario that runs.", read_only=True),
            Parameter("seed", self.sim.seed, "Seed of all noise. Takes effect at the next reset."),
            Parameter("real_time_factor", float(self.runner.rtf), speed, False, 0.0, 100_000.0, any_number=True),
            Parameter("use_sim_time", True, "The simulator is the clock.", read_only=True),
            Parameter("stamped_cmd_vel", scenario.stamped_cmd_vel, "Take TwistStamped.", read_only=True),
            Parameter("ticks_per_step", 1, ticks, False, 1, MAX_STEPS),
            Parameter("step_waits_for", "", waits),
        ]
        parameters = [*own, *self.settings.declarations()]
        self._declared = {parameter.name for parameter in parameters}
        self.transport.declare(parameters, self._on_set)

    def _on_set(self, changes: Mapping[str, Value]) -> str:
        """All or none."""
        of_scenario = {name: value for name, value in changes.items() if name not in OWN_PARAMETERS}
        self.settings.follow(self.sim.scenario)
        for name in of_scenario:
            if not self.settings.knows(name):
                return f"the scenario {self.sim.scenario.name!r} has no {name}"
        before = self.settings.memory()
        try:
            if refusal := self.settings.change(of_scenario, self.sim.initial_scenario) if of_scenario else "":
                return refusal
            own = {name: value for name, value in changes.items() if name not in of_scenario}
            self._check_own(own)
            if self.settings.scenario != self.sim.scenario:
                self.sim.reconfigure(self.settings.scenario)
            self.set_own(own)
        except MicroSimError as error:
            self.settings.recall(before)
            return str(error)
        return ""

    def _check_own(self, changes: Mapping[str, Any]) -> None:
        for topic in str(changes.get("step_waits_for", "")).split():
            if topic not in self._heard:
                raise UsageError(unknown("no input topic", repr(topic), topic, sorted(self._heard)))
        if "seed" in changes:
            at_seed(self.sim.initial_scenario, int(changes["seed"]))  # where a robot cannot start, nothing is set

    def set_own(self, changes: Mapping[str, Any]) -> None:
        self._check_own(changes)
        if "real_time_factor" in changes:
            self.runner.set_rtf(float(changes["real_time_factor"]))
        if "seed" in changes:
            self.sim.set_seed(int(changes["seed"]))
        if "ticks_per_step" in changes:
            self.services.ticks_per_step = int(_number("ticks_per_step", changes["ticks_per_step"]))
        if "step_waits_for" in changes:
            self.services.step_waits_for = tuple(str(changes["step_waits_for"]).split())


class Lateness:
    """How well the run keeps to wall time, for /diagnostics; figures since the last time they were requested."""

    def __init__(self) -> None:
        self._late_s: list[float] = []
        self._before = (0.0, 0.0)

    def measure(self, tick_s: float, late_s: float) -> None:
        self._late_s.append(late_s)

    def rtf(self, runner: Runner) -> float:
        wall, advanced = runner.wall_s, runner.advanced_s
        (wall_before, advanced_before), self._before = self._before, (wall, advanced)
        return (advanced - advanced_before) / (wall - wall_before) if wall > wall_before else 0.0

    def figures(self) -> dict[str, str]:
        late, self._late_s = sorted(self._late_s) or [0.0], []
        shares, last = {"p50": 0.5, "p99": 0.99, "max": 1.0}, len(late) - 1
        return {f"lateness_ms_{name}": f"{1e3 * late[round(share * last)]:.3f}" for name, share in shares.items()}


@dataclass(frozen=True)
class NodeStart:
    """What a node starts with: scenario < parameters from --ros-args < what else was given."""

    transport: Transport
    settings: ScenarioParameters
    seed: int | None
    rtf: float
    stepping: Mapping[str, Any]
    problems: Sequence[str]  # with parameters; they were logged

    def join(self, runner: Runner, takes_inputs: bool = True) -> MicroSimNode:
        """The node of a run of this scenario."""
        node = MicroSimNode(self.transport, runner, self.settings, takes_inputs)
        node.set_own(self.stepping)
        for problem in self.problems:
            runner.note("warn", problem)
        return node


def read_start(
    transport: Transport, scenario: Scenario | str | None, seed: int | None = None, rtf: float | None = None
) -> NodeStart:
    problems: list[str] = []

    def warn(text: str) -> None:
        transport.log("warn", text)
        problems.append(text)

    overrides: dict[str, Any] = dict(transport.overrides)
    for old, new in _RENAMED.items():
        if old in overrides:
            warn(f"the parameter {old} is deprecated: use {new}")
            overrides.setdefault(new, overrides.pop(old))
    own = {name: overrides.pop(name) for name in OWN_PARAMETERS if name in overrides}
    named = str(own.get("scenario", "default"))
    settings = ScenarioParameters(load_scenario(named if scenario is None else scenario))
    _apply(warn, settings, overrides)
    chosen_seed = own.get("seed") if seed is None else seed
    if chosen_seed is not None and (not isinstance(chosen_seed, int) or isinstance(chosen_seed, bool)):
        raise UsageError(f"the parameter seed must be a whole number, found {chosen_seed!r}")
    usual_rtf = 0.0 if settings.scenario.lockstep else 1.0  # the nodes set the pace
    chosen_rtf = own.get("real_time_factor", usual_rtf) if rtf is None else rtf
    if "stamped_cmd_vel" in own:
        settings.set_stamped(bool(own["stamped_cmd_vel"]))
    stepping = {name: own[name] for name in _OF_STEPPING if name in own}
    return NodeStart(transport, settings, chosen_seed, _number("real_time_factor", chosen_rtf), stepping, problems)


def start_node(
    transport: Transport, scenario: Scenario | str | None, seed: int | None = None, rtf: float | None = None
) -> MicroSimNode:
    """A run with nothing but its node."""
    start = read_start(transport, scenario, seed, rtf)
    return start.join(Runner(Simulation(start.settings.scenario, start.seed), start.rtf))


def _apply(warn: Callable[[str], None], settings: ScenarioParameters, overrides: Mapping[str, Value]) -> None:
    known = {name: value for name, value in overrides.items() if settings.knows(name)}
    for name in (name for name in overrides if name not in known):
        near = did_you_mean(name, [*settings.values(), *OWN_PARAMETERS])
        instead = f"; in its place there are {_REMOVED[name]}" if name in _REMOVED else near
        warn(f"there is no parameter {name}{instead}")
    if refusal := settings.start_with(known) if known else "":
        raise UsageError(f"a parameter from --ros-args is not accepted: {refusal}")


def _number(name: str, value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise UsageError(f"the parameter {name} must be a number, found {value!r}")
