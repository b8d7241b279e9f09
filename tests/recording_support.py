"""Small recorded runs for the tests of recordings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from microsim.messages.outbox import Message
from microsim.recording.bag_io import RecordOptions
from microsim.recording.recorder import Recorder
from microsim.simulation import Simulation

WORLD: dict[str, Any] = {
    "name": "small",
    "map": {"size_xy_cells": [40, 40]},
    "obstacles": [{"type": "box", "center": [20, 20, 0], "size": [4, 4, 3]}],
    "robots": {
        "drone": {
            "start": {"map_pose": {"x": 10, "y": 10, "z": 5, "yaw": 0}},
            "camera": {"resolution": {"width": 16, "height": 12}},
        },
        "rover": {"start": {"map_pose": {"x": 5, "y": 5, "yaw": 0.5}}},
    },
}


def fly(sim: Simulation, on_messages: Callable[[Sequence[Message]], None], ticks: int = 120, portion: int = 1) -> None:
    """A mission with every kind of input."""
    on_messages(sim.step(0))
    while sim.tick < ticks:
        if sim.tick % 20 == 0:
            sim.command("drone", vx=0.1 * sim.tick % 3, yaw_rate=-0.3)
            sim.command("rover", v=1.0, omega=0.2)
            sim.radio_send("drone", f"at {sim.tick}".encode())
        if sim.tick == 40:
            sim.set_pose("rover", 30.0, 30.0, yaw=7.5)
        on_messages(sim.step(min(portion, ticks - sim.tick, 20 - sim.tick % 20)))


def record(
    folder: Path, ticks: int = 120, portion: int = 1, world: Any = WORLD, seed: int | None = 3, **options: Any
) -> list[Message]:
    """Record that mission; gives every message that was sent."""
    sim = Simulation(world, seed)
    sent: list[Message] = []
    with Recorder(folder, sim, RecordOptions(**options)) as recorder:

        def on_messages(messages: list[Message]) -> None:
            sent.extend(messages)
            recorder.on_messages(messages)

        fly(sim, on_messages, ticks, portion)
    return sent


def files_of(folder: Path) -> dict[str, bytes]:
    """What must be the same in two recordings of the same run."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != "recording.json"}
