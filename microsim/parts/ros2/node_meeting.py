"""Before nodes are sent anything that counts: who they are, that they run, and that both sides have discovered all.

A gate can be kept only when its nodes have names, when all of their endpoints are known, when those that read several
topics answer requests, and when nothing that either side sends is lost because the other has not discovered it yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable

from microsim.parts.ros2.gate_state import Peers, Settling, probe_of
from microsim.parts.ros2.transport import NodeEnds, Transport

PATIENCE_S = 10.0  # without news: what is not known by then never will be, and is reported
SILENT_S = 3.0  # the same for what matters less: a node that reads one topic need not answer


class NodeMeeting:
    """Look again and again at `waits_for`; when it is empty, the other attributes say what is known."""

    def __init__(self, transport: Transport, now: Callable[[], float], topics: Collection[str]) -> None:
        """`topics`: that the run sends."""
        self._transport, self._now = transport, now
        self._names = {transport.resolved(topic): topic for topic in topics}
        self._ends: Peers = {}
        self._about: dict[str, NodeEnds | None] = {}  # by node
        self._since = now()  # there were no news
        self._settling = Settling(transport, now, insists=True)
        self._questioned: set[str] = set()  # nodes that were asked whether they run
        self._introduced: Callable[[Collection[Hashable]], bool] | None = None
        self._is_introducing = False
        self.reads: dict[str, frozenset[str]] = {}  # node -> topics of the run
        self.asked: set[str] = set()  # nodes that can be asked
        self.doubts: dict[str, str] = {}  # node -> why the order in which it handles its inputs is not known

    def waits_for(self, ends: Peers) -> str:
        """What must be known of the nodes of these endpoints before they are sent anything; empty: all is."""
        if ends.keys() != self._ends.keys():
            self._since = self._now()
            self._questioned, self._is_introducing = set(), False
        self._ends = ends
        is_late = self._now() - self._since > PATIENCE_S
        nodes = sorted(set(ends.values()) - {""})
        # beside nodes with names, one without may be the rest of a node that was killed
        is_stale = bool(nodes) and self._now() - self._since > SILENT_S
        if "" in ends.values() and not (is_late or is_stale):
            return "the name of a node"
        about = {node: self._transport.described(node) for node in nodes}
        if about != self._about:
            self._about, self._since = about, self._now()
        incomplete = [node for node in nodes if about[node] is None]
        if incomplete and not is_late:
            return f"all endpoints of {_joined(incomplete)}"
        self._describe(about)
        silent = self._silent()
        if silent:
            return f"{_joined(silent)} to answer a request, so that the order of its inputs is known"
        return self._mutual(nodes)

    def _describe(self, about: dict[str, NodeEnds | None]) -> None:
        self.reads, self.asked, self.doubts = {}, set(), {}
        for node, ends in about.items():
            if ends is None:
                self.doubts[node] = f"not all endpoints of {node} are known"
                continue
            self.reads[node] = frozenset(self._names[topic] for topic in ends.reads if topic in self._names)
            foreign = sorted(ends.reads - self._names.keys() - _OF_EVERY_NODE)
            if probe_of(node)[1:] in ends.serves:
                self.asked.add(node)
            elif len(self.reads[node]) > 1:
                self.doubts[node] = f"{node} reads several topics and has no parameter services"
            if foreign:
                self.doubts[node] = f"{node} also reads {_joined(foreign)}, which this run does not send"

    def _silent(self) -> list[str]:
        """Nodes that must answer first."""
        if self.asked != self._questioned:
            self._questioned = set(self.asked)
            self._settling.begin(dict.fromkeys(sorted(self.asked), 1))
        before = len(self._settling.silent)
        self._settling.is_over()
        silent = self._settling.silent
        if len(silent) != before:
            self._is_introducing = False  # those that have answered may have made further endpoints before
        is_soon = self._now() - self._since < SILENT_S
        return [node for node in silent if len(self.reads[node]) > 1 or is_soon]

    def _mutual(self, nodes: list[str]) -> str:
        """That both sides have discovered each other."""
        if not self._is_introducing:
            self._is_introducing = True
            self._introduced = self._transport.acquaint()
        named = [end for end, node in self._ends.items() if node]
        if self._introduced is not None and not self._introduced(named):
            return f"{_joined(nodes)} to discover this node"
        if self._now() - self._since < self._transport.discovery_s:
            return f"{_joined(nodes)} to make further endpoints, {self._transport.discovery_s:g} s after the latest"
        return ""

    def newly_read(self) -> dict[str, frozenset[str]]:
        """By node: topics of the run that it has begun to read since the meeting was over."""
        found = {}
        for node, before in self.reads.items():
            ends = self._transport.described(node)
            now = {self._names[topic] for topic in ends.reads if topic in self._names} if ends is not None else set()
            if more := now - before:
                found[node] = frozenset(more)
        return found


_OF_EVERY_NODE = frozenset({"/clock", "/parameter_events"})


def _joined(names: Collection[str]) -> str:
    return " and ".join(names) or "a node without a name"
