"""`--lockstep auto`: proposes gates for the nodes that are there, and only those that it has tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from microsim.errors import UsageError
from microsim.messages.outbox import Message
from microsim.parts.ros2.gate_state import CLOCK, probe_of
from microsim.parts.ros2.lockstep import LockstepError
from microsim.scenario.gates import Gate

if TYPE_CHECKING:
    from microsim.parts.ros2.microsim_node import MicroSimNode

FEWEST = 3  # messages, to propose a gate
NEAR = 0.2  # how far from a whole number the replies to each message may be: the last may not have arrived
ROUND = 0.05  # share of a rate by which it may differ from a whole number
TRIED_S = 2  # of simulated time with a gate, and
REST_S = 0.3  # before each trial
WITHIN_S = 3.0  # longest wait for each reply there [s]


@dataclass
class GateTrial:
    """How a gate went."""

    gate: dict[str, Any]
    problem: str = ""
    opened: int = 0
    longest_s: float = 0.0

    def __str__(self) -> str:
        return ", ".join(f"{key}: {value}" for key, value in self.gate.items()).replace("'", "")


class GateProposal:
    """Watches which nodes reply to what, and never waits; then tries gates. The user decides."""

    def __init__(self, node: MicroSimNode) -> None:
        self._node = node
        self._sent: dict[str, Counter[str]] = {}  # by node that replies: messages on topics that it reads
        self._replies: dict[str, tuple[int, int, int]] = {}  # by topic: how many, simulated time of first and last [ns]
        self._waits: list[tuple[str, float]] = []  # of a trial: what opened, and after how long [s]
        node.runner.listen(waits=lambda tick, topic, nodes, waited, doubt: self._waits.append((topic, waited)))
        node.observe(self)

    def sent(self, messages: Sequence[Message]) -> Sequence[Message]:
        for topic in {message.topic for message in messages}:
            for node in set(self._node.transport.peers(topic, publishers=False).values()):
                self._sent.setdefault(node, Counter())[topic] += 1
        return messages

    def arrived(self, topic: str, stamp: int | None, deliver: Callable[[], None]) -> None:
        now = self._node.sim.time_ns
        count, first, _ = self._replies.get(topic, (0, now, now))
        self._replies[topic] = count + 1, first, now
        deliver()

    def status(self) -> tuple[int, str, dict[str, str]]:
        return 0, "watching", {f"replies {topic}": str(count) for topic, (count, _, _) in self._replies.items()}

    # ---- proposals -------------------------------------------------------------------------------------------------

    def block(self) -> str:
        """YAML for a scenario, of gates that were tried one after another; empty: no node replied."""
        kept: list[dict[str, Any]] = []
        lines: list[str] = []
        for topic, (count, first, last) in sorted(self._replies.items()):
            nodes = sorted(set(self._node.transport.peers(topic, publishers=True).values()) - {""})
            tried = list[GateTrial]()
            for gate in self._candidates(topic, nodes, count, (last - first) / 1e9) if count >= FEWEST else ():
                tried.append(self._tried(kept, gate))
                if not tried[-1].problem:
                    kept.append(gate)
                    break
            lines += _lines(topic, nodes, tried)
        self._node.observe(self)
        return "\n".join(["lockstep:" if kept else "# no gate could be kept", *lines]) if lines else ""

    def _candidates(self, topic: str, nodes: Sequence[str], replies: int, duration_s: float) -> list[dict[str, Any]]:
        """Gates from the most to the least likely: topics that are answered one by one, the period of the replies,
        and, for a node that replies only sometimes, that it settles."""
        robot = topic.split("/")[1]
        found = []
        for node in nodes:
            for read, count in self._sent.get(node, Counter()).items():
                ratio = replies / count
                error = abs(ratio - round(ratio))
                if read != CLOCK and round(ratio) >= 1 and error <= NEAR:
                    found.append((round(ratio), read.split("/")[1] != robot, error, read))
        gates: list[dict[str, Any]] = [
            {"after": read, "expect": topic, **({"count": count} if count > 1 else {})}
            for count, _, _, read in sorted(found)
        ]
        period = max(duration_s / (replies - 1), self._node.sim.clock.dt)
        rate = 1.0 / period
        whole = round(rate) if abs(rate - round(rate)) <= ROUND * rate else rate  # timers have round rates
        gates.append({"every": float(f"{1.0 / max(whole, 1e-3):.3g}"), "expect": topic})
        for node in nodes:
            about = self._node.transport.described(node)
            if about is not None and probe_of(node)[1:] in about.serves:
                gates.append({"settle": {"node": node}})
        return gates

    def _tried(self, kept: Sequence[dict[str, Any]], gate: dict[str, Any]) -> GateTrial:
        """Run on with this gate and those that were kept."""
        trial, runner = GateTrial(gate), self._node.runner
        gates = [Gate.model_validate({**each, "within": WITHIN_S, "on_stall": "fail"}) for each in (*kept, gate)]
        self._node.observe(self)
        self._node.transport.poll()
        end = runner.clock.now() + REST_S
        while runner.clock.now() < end:  # replies to what was sent before
            self._node.transport.poll(REST_S / 10)
        self._waits.clear()
        lockstep = self._node.use_gates(gates)
        try:
            runner.run(runner.sim.clock.ticks_in(Fraction(TRIED_S)))
        except LockstepError as error:
            trial.problem = str(error).removeprefix("lockstep: ")
        own = [waited for topic, waited in self._waits if topic == gates[-1].awaited]
        trial.opened, trial.longest_s = len(own), max(own, default=0.0)
        if not trial.problem and not own:
            trial.problem = f"no such gate within {TRIED_S} s"
        if not trial.problem and lockstep.has_surplus(gates[-1]):
            trial.problem = "more replies came than the gate takes"
        return trial


def _lines(topic: str, nodes: Sequence[str], tried: Sequence[GateTrial]) -> list[str]:
    names = " ".join(nodes) or "a node that has left"
    lines = [f"  # not {{{trial}}}: {trial.problem}" for trial in tried if trial.problem]
    for trial in tried:
        if not trial.problem:
            went = f"tried: {trial.opened} gates opened, longest wait {trial.longest_s:.3f} s"
            lines.append(f"  - {{{trial}}} # {names}; {went}")
    return lines or [f"  # {topic}: too few messages from {names}"]


def propose(node: MicroSimNode | None, is_json: bool) -> GateProposal:
    if node is None:
        raise UsageError("--lockstep auto watches ROS 2 nodes: leave out --transport none and --rtf 0")
    if is_json:
        raise UsageError("--lockstep auto prints YAML: leave out --json")
    return GateProposal(node)
