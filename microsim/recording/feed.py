"""A recorded run's inputs as a pilot: for a replay in wall time, alone or on ROS 2."""

from __future__ import annotations

from collections.abc import Sequence

from microsim.messages.outbox import Message
from microsim.recording.replay import Replay
from microsim.simulation import Simulation

_AT_ONCE = 64  # ticks; more would leave the processor's cache


class Feed:
    """Takes each input at its tick. `sim` may be another simulation of the same scenario and seed."""

    def __init__(self, replay: Replay, sim: Simulation) -> None:
        self._replay = replay
        self._sim = sim
        replay.use(sim)
        self._inputs = replay.inputs()
        self._next = next(self._inputs, None)

    def __call__(self, messages: Sequence[Message] = ()) -> None:
        while self._next is not None and self._next[0] <= self._sim.tick:
            self._replay.take(*self._next[1:])
            self._next = next(self._inputs, None)

    def skip_to(self, tick: int) -> list[Message]:
        """As fast as possible, with nobody listening; what the last tick sends is left for the runner.

        Gives the latest message of each latched topic: who comes later still has to know of these.
        """
        sim = self._sim
        latched: dict[str, Message] = {}
        self()
        while sim.tick < tick - 1:
            stop = tick - 1 if self._next is None else min(tick - 1, max(self._next[0], sim.tick + 1))
            sent = sim.step(min(stop - sim.tick, _AT_ONCE))
            latched.update((each.topic, each) for each in sent if sim.topics[each.topic][1].latched)
            self()
        return list(latched.values())
