"""Radios of a batch's worlds: each is the `RadioNetwork` of the single world, made when it sends its first packet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from microsim.engine.radio import RadioNetwork

Packets = list[tuple[str, bytes]]  # (sender, payload), or (receiver, payload)


class BatchRadio:
    """`make` gives the radio of a seed; `distance` is that of two robots in a world [m]."""

    def __init__(self, make: Callable[[int], RadioNetwork], distance: Callable[[str, str, int], float]) -> None:
        self._make, self._distance = make, distance
        self.networks: dict[int, RadioNetwork] = {}
        self.received: dict[int, Packets] = {}  # in the last step
        self._waiting: dict[int, Packets] = {}  # for the next tick

    def send(self, sender: str, payloads: Iterable[bytes | None], worlds: Sequence[int]) -> None:
        for world, payload in zip(worlds, payloads, strict=True):
            if payload is not None:
                self._waiting.setdefault(world, []).append((sender, payload))

    def take(self, seeds: Any, ticks: Any) -> None:
        """Send the packets that wait."""
        waiting, self._waiting = self._waiting, {}
        for world, packets in waiting.items():
            if world not in self.networks:
                self.networks[world] = self._make(int(seeds[world]))

            def distance(first: str, second: str, world: int = world) -> float:
                return self._distance(first, second, world)

            for sender, payload in packets:
                self.networks[world].send(sender, payload, int(ticks[world]), distance)

    def deliver(self, ticks: Any, done: int) -> None:
        """What arrived in the last `done` ticks; what was under way while robots only moved arrives with the first."""
        self.received = {}
        for world, network in self.networks.items():
            now = int(ticks[world])
            due = max(network.next_arrival(), now - done + 1)
            while due <= now:
                self.received.setdefault(world, []).extend(network.deliver(int(due)))
                due = network.next_arrival()

    @property
    def is_used(self) -> bool:
        return bool(self.networks or self.received or self._waiting)

    def reset(self, worlds: Iterable[int]) -> None:
        for world in worlds:
            for each in (self.networks, self.received, self._waiting):
                each.pop(world, None)

    def save(self, worlds: Sequence[int]) -> list[Any]:
        """Of each world: its radio (None: not used yet) and what waits."""
        return [
            (self.networks[w].save() if w in self.networks else None, list(self._waiting.get(w, ()))) for w in worlds
        ]

    def load(self, worlds: Sequence[int], seeds: Any, saved: Sequence[Any]) -> None:
        self.reset(worlds)
        for world, (network, waiting) in zip(worlds, saved, strict=True):
            if network is not None:
                self.networks[world] = self._make(int(seeds[world]))
                self.networks[world].load(network)
            if waiting:
                self._waiting[world] = list(waiting)
