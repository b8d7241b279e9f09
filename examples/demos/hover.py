"""The drone holds its position in gusty wind and looks around; the rover waits below and listens.

    microsim demo hover

A pilot is called with each tick's messages and commands robots before the next tick. This one knows only the drone's
odometry: it steers back to where it began, and the harder the wind pushes, the more it leans against it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from microsim import Message, Simulation, exact  # sine and cosine with the same bits on every machine

SCENARIO = {
    "name": "hover",
    "seed": 3,
    "map": {"size_xy_cells": [60, 60], "elevation": {"generate": "hills", "amplitude_m": 1.2, "wavelength_m": 30}},
    "obstacles": [
        {"type": "cylinder", "center": [36, 33, 0], "radius": 1, "height": 3},
        {"type": "box", "center": [25, 35, 0], "size": [3, 2, 1.5]},
    ],
    "features": [
        {"type": "rectangle", "class": "target", "center": [30, 30], "size": [4, 4]},
        {"type": "circle", "class": "ground", "center": [30, 30], "radius": 1.2},
        {"type": "triangle", "class": "hazard", "center": [33, 27], "side": 2},
    ],
    "robots": {
        "drone": {"start": {"map_pose": {"x": 30, "y": 30, "z": 9}}, "camera": {"hz": 5}},
        "rover": {"start": {"map_pose": {"x": 27, "y": 27, "yaw": 0.8}}},
    },
    "wind": {"world_xyz": [1.0, -0.5, 0.0], "gust_sigma": 0.9, "gust_tau_s": 1.5},
}
GAIN, PATIENCE = 1.6, 0.5  # [1/s] of the error, and of the error summed over time
LOOK_RAD_PER_S = 0.25
RADIO_S = 1.0  # between packets
END_S, GUST_M = 45.0, 0.6  # so far off, it is worth a line


class Pilot:
    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.home: tuple[float, float, float] | None = None
        self.lean = [0.0, 0.0, 0.0]  # what it has learnt about the wind [m/s]
        self.next_packet_s = 0.0
        self.worst_m, self.quiet_until_s = 0.0, 3.0
        self.events: list[tuple[float, str]] = []  # the page shows them
        self.is_done = False
        self.waypoints: dict[str, tuple[tuple[float, float, float], ...]] = {}  # the page shows them

    def __call__(self, messages: Sequence[Message]) -> None:
        for each in messages:
            if each.topic == "/drone/odom":
                self.fly(each.message.pose.pose, each.stamp_ns / 1e9)

    def fly(self, pose: object, now_s: float) -> None:
        here, turn = pose.position, pose.orientation  # type: ignore[attr-defined]
        place = (here.x, here.y, here.z)
        if self.home is None:
            self.home = place
            self.waypoints = {"drone": (place,)}
        error = [there - at for there, at in zip(self.home, place, strict=True)]
        self.lean = [
            min(max(lean + PATIENCE * miss / 30.0, -3.0), 3.0) for lean, miss in zip(self.lean, error, strict=True)
        ]
        east, north, up = (GAIN * miss + lean for miss, lean in zip(error, self.lean, strict=True))
        yaw = 2.0 * exact.atan2(turn.z, turn.w)
        sine, cosine = exact.sin(yaw), exact.cos(yaw)
        self.sim.command(
            "drone",
            vx=cosine * east + sine * north,
            vy=cosine * north - sine * east,
            vz=up,
            yaw_rate=LOOK_RAD_PER_S,
        )
        off = math.sqrt(sum(miss * miss for miss in error))
        self.report(off, now_s)
        if now_s >= self.next_packet_s:
            self.next_packet_s += RADIO_S
            self.sim.radio_send("drone", f"hovering, {off:.2f} m off".encode())

    def report(self, off_m: float, now_s: float) -> None:
        self.worst_m = max(self.worst_m, off_m)
        if off_m > GUST_M and now_s > self.quiet_until_s:
            self.quiet_until_s = now_s + 5.0
            self.events.append((now_s, f"a gust pushed the drone {off_m:.1f} m away"))
        if now_s >= END_S and not self.is_done:
            self.is_done = True
            self.events.append((now_s, f"the drone stayed within {self.worst_m:.1f} m for {END_S:.0f} s"))
