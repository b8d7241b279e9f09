"""The states of a run, tick by tick, handed to metrics in blocks: a run pays no more than a copy a tick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from microsim.engine.geometry import Array
from microsim.missions import MissionPilot
from microsim.simulation import Simulation

TICKS = 256  # in a block; sums are taken block by block, so this number is part of what they are

Block: TypeAlias = Mapping[str, Array]  # robot -> (ticks, rows) its state after each of these ticks


@dataclass(frozen=True)
class Run:
    """One run under way, as metrics see it."""

    sim: Simulation
    pilot: MissionPilot | None

    @property
    def dt(self) -> float:
        return self.sim.clock.dt


class Trace:
    """Collects states until a block is full. As bytes, which are the quickest copies there are."""

    def __init__(self, sim: Simulation) -> None:
        self._sim, self._fleets = sim, sim.fleets
        self._copies: list[list[bytes]] = [[] for _ in self._fleets]
        self._pairs = list(zip(self._copies, self._fleets, strict=True))
        self.count = 0

    def add(self) -> bool:
        """The state as it is now. True: the block is full."""
        if self._sim.fleets is not self._fleets:  # other settings, from here on
            self._fleets = self._sim.fleets
            self._pairs = list(zip(self._copies, self._fleets, strict=True))
        for copies, fleet in self._pairs:
            copies.append(fleet.state.tobytes())
        self.count += 1
        return self.count == TICKS

    def take(self) -> Block:
        """What has been collected."""
        found: dict[str, Array] = {}
        for copies, fleet in self._pairs:
            states = np.frombuffer(b"".join(copies)).reshape(self.count, *fleet.state.shape)
            found |= {name: states[:, :, column] for column, name in enumerate(fleet.names)}
            copies.clear()
        self.count = 0
        return found
