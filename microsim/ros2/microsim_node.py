"""The node `microsim`: a running simulation on a transport."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from microsim.errors import MicroSimError
from microsim.messages import encoders
from microsim.messages.checked import WireError, decode_checked
from microsim.messages.inputs import INPUTS
from microsim.messages.outbox import Message
from microsim.messages.topics import TOPICS, Qos
from microsim.ros2.lateness import Lateness
from microsim.ros2.node_parameters import Settings
from microsim.ros2.simulate_steps import SimulateSteps
from microsim.ros2.simulation_interfaces import SimulationInterfaces
from microsim.ros2.transport import MissingTypeError, Parameter, Publisher, Transport, Value
from microsim.runner import Pilot, Runner, Watcher
from microsim.scenario import Scenario
from microsim.simulation import Simulation

MAX_STEPS = 1_000_000  # ticks that one call of /sim/step may ask for
_QUIET_S = 1.0  # at most one warning of a kind in this time
OWN_PARAMETERS = (
    "scenario",
    "seed",
    "real_time_factor",
    "use_sim_time",
    "stamped_cmd_vel",
)  # parameters of no scenario's


Take: TypeAlias = Callable[[Simulation, str, Any], bool]  # robot, message; False when the simulation ignores it


class MicroSimNode:
    """Publishes what the simulation sends, takes commands, serves the services, shows the parameters."""

    def __init__(
        self,
        transport: Transport,
        runner: Runner,
        settings: Settings,
        pilot_for: Callable[[Simulation], Pilot | None] = lambda sim: None,
        takes_inputs: bool = True,
    ) -> None:
        """`takes_inputs` false: topics drive nothing, as in a replay, where only the pilot does."""
        self.transport = transport
        self._takes_inputs = takes_inputs
        self._pilot_for = pilot_for
        self.runner = runner
        self.settings = settings
        self.malformed = 0  # messages that could not be read
        self._publishers: dict[str, Publisher] = {}
        self._publish: dict[str, Callable[[bytes], None]] = {}
        self._missing: set[str] = set()
        self._heard: set[str] = set()
        self._last_warning_s: dict[str, float] = {}
        self._counted: dict[str, int] = {}  # what the simulation had ignored when we last looked
        self._lateness = Lateness()
        self._encode_diagnostics = encoders.diagnostics()
        self._subscribe()
        self._serve()
        self._declare()
        self._connect()

    @property
    def sim(self) -> Simulation:
        return self.runner.sim

    @property
    def has_step_action(self) -> bool:
        return self._action is not None

    def _connect(self) -> None:
        runner = self.runner
        runner.listen = self._poll
        runner.on_warning = lambda text: self.transport.log("warn", text)
        runner.taps.append(self.publish)
        runner.measure = self._lateness.beside(runner.measure)
        runner.watchers.append(Watcher(1.0, self._publish_diagnostics))
        self._advertise()
        self.transport.poll()  # peers are told of all endpoints at once

    def warn(self, text: str) -> None:
        """To ROS 2 and the run's own notes."""
        self.transport.log("warn", text)
        self.runner.note("warn", text)

    def _poll(self, timeout_s: float) -> None:
        action = self._action
        if action is None or action.under_way is None:
            self.transport.poll(timeout_s)
            return
        self.transport.poll(0.0)
        action.go_on()

    # ---- topics -----------------------------------------------------------------------------------------------------

    def publish(self, messages: Sequence[Message]) -> None:
        publish = self._publish
        for message in messages:
            if message.topic in publish:
                publish[message.topic](message.cdr)

    def _advertise(self) -> None:
        """A publisher for every topic the simulation sends on."""
        for topic, (type_name, qos) in self.sim.topics.items():
            self._advertise_one(topic, type_name, qos)
        self._advertise_one("/diagnostics", TOPICS["diagnostics"].type, TOPICS["diagnostics"].qos)

    def _advertise_one(self, topic: str, type_name: str, qos: Qos) -> None:
        if topic in self._publishers or topic in self._missing:
            return
        try:
            publisher = self._publishers[topic] = self.transport.publisher(topic, type_name, qos)
            self._publish[topic] = publisher.publish
        except MissingTypeError as error:
            self._missing.add(topic)
            self.warn(f"{topic} is not published: {error}")

    def _subscribe(self) -> None:
        for robot in self.sim.robots if self._takes_inputs else ():
            for kind in INPUTS.built_in.values():
                if kind.is_taken_by(self.sim, robot):
                    self._listen(kind.name, robot, kind.take, kind.type_for(self.sim))

    def _listen(self, kind: str, robot: str, take: Take, expected: str) -> None:
        topic = TOPICS[kind].of(robot)
        if topic in self._heard:
            return  # since a world before this one
        self._heard.add(topic)

        def on_message(cdr: bytes) -> None:
            try:
                message = decode_checked(expected, cdr)
            except WireError as error:
                self.malformed += 1
                self._ignored(topic, f"{topic}: a message that is no {expected} was ignored: {error}")
                return
            try:
                if robot in self.sim.robots and not take(self.sim, robot, message):
                    why = self._why()
                    self._warn(topic, f"{topic}: ignored: {why}; so far {dict(self.sim.counters)}")
                    self.runner.note("warn", f"{topic}: ignored: {why}", f"ignored: {why}")
            except MicroSimError as error:
                self.malformed += 1
                self._ignored(topic, f"{topic}: ignored: {error}")

        try:
            self.transport.subscribe(topic, expected, TOPICS[kind].qos, on_message)
        except MissingTypeError as error:
            self.warn(f"{topic} is not listened to: {error}")

    def _why(self) -> str:
        """What the simulation has counted since the last time."""
        counters, before = self.sim.counters, self._counted
        self._counted = dict(counters)
        return ", ".join(reason for reason, count in counters.items() if count != before.get(reason))

    def _ignored(self, topic: str, text: str) -> None:
        self._warn(topic, text)
        self.runner.note("warn", text, f"malformed {topic}")

    def _warn(self, kind: str, text: str) -> None:
        """At most once a second of each kind."""
        now = self.runner.clock.now()
        if now - self._last_warning_s.get(kind, -math.inf) >= _QUIET_S:
            self._last_warning_s[kind] = now
            self.transport.log("warn", text)

    def _publish_diagnostics(self) -> None:
        """Facts about wall time, outside the digest."""
        publisher = self._publishers.get("/diagnostics")
        if publisher is None:
            return
        runner, sim = self.runner, self.sim
        links = sim.radio.links if sim.radio else []
        facts = {
            "real_time_factor": f"{self._lateness.rtf(runner):.4f}",
            **self._lateness.figures(),
            "paused": str(runner.paused).lower(),
            "radio_queue": str(sum(len(link.queue) for link in links)),
            "ignored_inputs": str(sum(sim.counters.values())),
            "malformed_messages": str(self.malformed),
        }
        publisher.publish(self._encode_diagnostics(sim.time_ns, {"microsim": facts}))

    # ---- services ---------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        self._not_offered: dict[str, list[str]] = {}  # why -> what
        self.offer("/sim/reset", ("std_srvs/srv/Empty",), lambda request, response: self.reset())
        self.offer("/sim/pause", ("example_interfaces/srv/SetBool", "std_srvs/srv/SetBool"), self._on_pause)
        set_int = ("example_interfaces/srv/SetInt32", "microsim_interfaces/srv/SetInt32")
        self.offer("/sim/set_seed", set_int, self._on_set_seed)
        self.offer("/sim/step", set_int, self._on_step)
        self._action = self._step_action()
        SimulationInterfaces(self)
        for why, names in self._not_offered.items():  # one line for each package that is not installed
            self.warn(f"not offered: {', '.join(names)}: {why}")

    def _step_action(self) -> SimulateSteps | None:
        try:
            return SimulateSteps(self)
        except MissingTypeError as error:
            self._not_offered.setdefault(error.reason, []).append("the action simulate_steps")
            return None

    def offer(self, service: str, types: tuple[str, ...], handler: Callable[[Any, Any], None]) -> None:
        """Serve under the first of the types that the transport knows."""
        reasons = []
        for type_name in types:
            try:
                self.transport.serve(service, type_name, handler)
            except MissingTypeError as error:
                reasons.append(error.reason)
            else:
                return
        self._not_offered.setdefault(reasons[0], []).append(service)

    def reset(self) -> None:
        """Back to the start with the seed and the parameters set meanwhile."""
        settings, sim = self.settings, self.sim
        changed = settings.next_scenario != sim.scenario
        settings.use_next()
        if changed:
            sim = Simulation(settings.scenario, sim.next_seed)
        else:
            sim.reset()
        self._run(sim)

    def load(self, scenario: Scenario) -> None:
        """Go on with another scenario, from its start and with its seed."""
        self.settings = Settings(scenario)
        sim = Simulation(scenario)
        self.runner.restart(sim)
        self._subscribe()
        self._run(sim)

    def _run(self, sim: Simulation) -> None:
        """Advertise before the first messages go out."""
        self.runner.restart(sim)
        self.runner.pilot = self._pilot_for(sim)
        self._advertise()
        self.runner.hand_out(sim.step(0))
        declared = {name: value for name, value in self.settings.values().items() if name in self._declared}
        self.transport.set_parameters({**declared, "scenario": sim.scenario.name, "seed": sim.seed})

    def _on_pause(self, request: Any, response: Any) -> None:
        self.runner.pause(bool(request.data))
        response.success, response.message = True, "paused" if request.data else "running"

    def _on_set_seed(self, request: Any, response: Any) -> None:
        self.sim.set_seed(int(request.data))
        response.success, response.message = True, f"seed {int(request.data)} takes effect at the next reset"

    def _on_step(self, request: Any, response: Any) -> None:
        response.message = self.step(int(request.data))
        response.success = not response.message
        if response.success:
            response.message = f"now at tick {self.sim.tick}"

    def step(self, ticks: int) -> str:
        """Advance a paused simulation; gives the reason when it cannot."""
        if not self.runner.paused:
            return "the simulation is running; pause it first (/sim/pause with data: true)"
        if not 1 <= ticks <= MAX_STEPS:
            return f"the number of ticks must be from 1 to {MAX_STEPS}, found {ticks}"
        self.runner.step(ticks)
        return ""

    # ---- parameters -------------------------------------------------------------------------------------------------

    def _declare(self) -> None:
        own = [
            Parameter("scenario", self.sim.scenario.name, "Name of the scenario that runs.", read_only=True),
            Parameter("seed", self.sim.seed, "Seed of all noise. Takes effect at the next reset."),
            Parameter(
                "real_time_factor",
                float(self.runner.rtf),
                "Simulated seconds per second; 0: as fast as possible.",
                minimum=0.0,
                maximum=100_000.0,
                any_number=True,
            ),
            Parameter("use_sim_time", True, "The simulator is the clock.", read_only=True),
            Parameter("stamped_cmd_vel", self.sim.scenario.stamped_cmd_vel, "Take TwistStamped.", read_only=True),
        ]
        parameters = [*own, *self.settings.declarations()]
        self._declared = {parameter.name for parameter in parameters}
        self.transport.declare(parameters, self._on_set)

    def _on_set(self, changes: Mapping[str, Value]) -> str:
        """All or none."""
        of_scenario = {name: value for name, value in changes.items() if name not in OWN_PARAMETERS}
        strange = [name for name in of_scenario if not self.settings.knows(name)]
        if strange:
            return f"the scenario {self.sim.scenario.name!r} has no {strange[0]}"
        self.settings.follow(self.sim.scenario)
        before = self.settings.memory()
        try:
            refusal = self.settings.change(of_scenario) if of_scenario else ""
            if refusal:
                return refusal
            self._set_own({name: value for name, value in changes.items() if name not in of_scenario})
        except MicroSimError as error:
            self.settings.recall(before)
            return str(error)
        if self.settings.scenario != self.sim.scenario:
            self.sim.reconfigure(self.settings.scenario)
        return ""

    def _set_own(self, changes: Mapping[str, Any]) -> None:
        if "real_time_factor" in changes:
            self.runner.set_rtf(float(changes["real_time_factor"]))
        if "seed" in changes:
            self.sim.set_seed(int(changes["seed"]))
