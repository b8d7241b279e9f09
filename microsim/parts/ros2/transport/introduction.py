"""Whether other nodes have discovered every endpoint of this one: only then nothing that either side sends is lost.

DDS reports only what this side has discovered; the other may be seconds behind, and what is sent meanwhile never
arrives. But each participant announces its endpoints in the order in which they were made. So two further endpoints
are made, after all others, on the topic on which every node of ROS 2 announces itself. When a participant has sent its
announcement to the new reader, it knows all readers of this one; when it has acknowledged what the new writer sent, it
knows all writers.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable

from microsim.parts.ros2.transport.cdr_endpoints import matched
from microsim.parts.ros2.transport.dds_graph import Graph, announced
from microsim.parts.ros2.transport.rtps_packets import PREFIX

ENCAPSULATED = 4  # [byte] before the participant's GUID in an announcement
STALE_S = 3.0  # after which acknowledgements of all that ever matched are no longer awaited: some may have died


class Introduction:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._met: set[bytes] = set()  # participants that know our readers
        self._is_open, self._is_over = True, False
        self._met_all_s = 0.0
        self._reader = graph.discovery_reader(self._hear)
        self._writer = graph.discovery_writer()

    def is_over(self, ends: Collection[Hashable]) -> bool:
        """Whether the participants of these endpoints know all of this node's."""
        wanted = {end[:PREFIX] for end in ends if isinstance(end, bytes)}
        if self._is_over or not wanted <= self._met:
            return self._is_over
        self._met_all_s = self._met_all_s or time.monotonic()
        is_late = time.monotonic() > self._met_all_s + STALE_S
        if not is_late and not (wanted <= self._listening() and self._writer.wait_for_acks(0.0)):
            return False
        self._is_over = True
        self.close()
        return True

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._graph.drop(self._reader)
        self._graph.drop(self._writer)

    def _hear(self) -> None:
        self._met.update(cdr[ENCAPSULATED : ENCAPSULATED + PREFIX] for cdr, _ in self._reader.take())

    def _listening(self) -> set[bytes]:
        """Participants that the new writer is matched with."""
        writer = self._writer.writer
        found = (announced(writer, handle) for handle in matched(writer))
        return {each.key.bytes[:PREFIX] for each in found if each is not None}
