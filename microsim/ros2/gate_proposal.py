"""`--lockstep auto`: watches which nodes reply to what, and proposes gates. The user decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from microsim.errors import UsageError
from microsim.messages.outbox import Message
from microsim.ros2.lockstep import CLOCK
from microsim.ros2.microsim_node import MicroSimNode

FEWEST = 3  # messages, to propose anything
NEAR = 0.2  # how far from a whole number the replies to each message may be: the last may not have arrived


class GateProposal:
    """Takes the place of a node's lockstep without ever waiting."""

    def __init__(self, node: MicroSimNode) -> None:
        self._node = node
        self._sent: dict[str, Counter[str]] = {}  # by node that replies: messages on topics that it reads
        self._replies: dict[str, tuple[int, int, int]] = {}  # by topic: how many, simulated time of first and last [ns]
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

    def block(self) -> str:
        """YAML for a scenario; empty: no node replied."""
        lines = []
        for topic, (count, first, last) in sorted(self._replies.items()):
            nodes = sorted(set(self._node.transport.peers(topic, publishers=True).values()))
            gate = self._gate(nodes, count, (last - first) / 1e9) if count >= FEWEST else ""
            if gate:
                lines.append(f"  - {{{gate}, expect: {topic}}} # {' '.join(nodes) or 'a node that has left'}")
        return "\n".join(["lockstep:", *lines]) if lines else ""

    def _gate(self, nodes: Sequence[str], replies: int, duration_s: float) -> str:
        """The topic whose messages are answered most evenly, else the period of the replies."""
        found = []
        for node in nodes:
            for topic, count in self._sent.get(node, Counter()).items():
                ratio = replies / count
                if topic != CLOCK and round(ratio) >= 1 and abs(ratio - round(ratio)) <= NEAR:
                    found.append((abs(ratio - round(ratio)), topic, round(ratio)))
        if found:
            _, topic, count = min(found)
            return f"after: {topic}" + (f", count: {count}" if count > 1 else "")
        return f"every: {max(duration_s / (replies - 1), self._node.sim.clock.dt):.3g}"


def propose(node: MicroSimNode | None, is_json: bool) -> GateProposal:
    """Of `--lockstep auto`."""
    if node is None:
        raise UsageError("--lockstep auto watches ROS 2 nodes: leave out --transport none and --rtf 0")
    if is_json:
        raise UsageError("--lockstep auto prints YAML: leave out --json")
    return GateProposal(node)
