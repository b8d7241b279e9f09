"""The rover finds its way through an arena with one range beam; the drone films it from above.

    microsim demo avoid

The beam sees one line, so the rover swings its nose to look left and right of it. Near something it turns towards
where there was more room. The drone reads where the rover is from its radio packets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from microsim import Message, Simulation, exact  # sine and cosine with the same bits on every machine

SCENARIO = "obstacles_arena"
CRUISE, SWING_RAD_PER_S, TURN_RAD_PER_S = 1.5, 0.35, 1.0  # [m/s]
NEAR_M, CLEAR_M = 2.2, 4.5  # turns below the first, drives on above the second
HEIGHT_M = 16.0
END_S = 90.0


class Pilot:
    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.room = {1.0: 10.0, -1.0: 10.0}  # side -> [m] seen lately; +1 is left
        self.side = 1.0  # to which it swings
        self.turning = 0.0  # 0: drives
        self.swings = 0
        self.rover: tuple[float, float] | None = None  # as the drone last received it
        self.turns, self.way_m, self.last = 0, 0.0, (0.0, 0.0)
        self.events: list[tuple[float, str]] = []  # the page shows them
        self.is_done = False

    def __call__(self, messages: Sequence[Message]) -> None:
        for each in messages:
            if each.topic == "/rover/range/front":
                self.see(each.message.range, each.stamp_ns / 1e9)
            elif each.topic == "/rover/odom":
                here = each.message.pose.pose.position
                self.count((here.x, here.y), each.stamp_ns / 1e9)
                if each.stamp_ns % 200_000_000 < 20_000_000:
                    self.sim.radio_send("rover", f"{here.x:.2f} {here.y:.2f}".encode())
            elif each.topic == "/radio/drone_rx":
                x, y = each.message.data.tobytes().split()
                self.rover = float(x), float(y)
            elif each.topic == "/drone/odom":
                self.film(each.message.pose.pose)

    def count(self, here: tuple[float, float], now_s: float) -> None:
        self.way_m += math.dist(self.last, here) if self.way_m or now_s > 0.0 else 0.0
        self.last = here
        if now_s >= END_S and not self.is_done:
            self.is_done = True
            self.events.append((now_s, f"{self.turns} turns, {self.way_m:.0f} m, no contact"))

    def see(self, distance: float, now_s: float) -> None:
        """Ten times a second: what the beam says, and what to do."""
        if math.isnan(distance):  # a dropout says nothing
            return
        distance = min(distance, 15.0)
        if self.turning:
            if distance > CLEAR_M:
                self.turning, self.swings = 0.0, 0
            else:
                self.sim.command("rover", v=-0.2 if distance < 0.8 else 0.0, omega=self.turning * TURN_RAD_PER_S)
                return
        self.room[self.side] = distance
        if distance < NEAR_M:
            self.turning = 1.0 if self.room[1.0] >= self.room[-1.0] else -1.0
            self.turns += 1
            side = "left" if self.turning > 0.0 else "right"
            self.events.append((now_s, f"something {distance:.1f} m ahead: the rover turns {side}"))
            return
        self.swings += 1
        if self.swings % 12 == 6:
            self.side = -self.side
        self.sim.command("rover", v=min(CRUISE, 0.45 * distance), omega=self.side * SWING_RAD_PER_S)

    def film(self, pose: Any) -> None:
        here, turn = pose.position, pose.orientation
        x, y = self.rover or (here.x, here.y)
        yaw = 2.0 * exact.atan2(turn.z, turn.w)
        sine, cosine = exact.sin(yaw), exact.cos(yaw)
        east, north = 0.8 * (x - here.x), 0.8 * (y - here.y)
        self.sim.command(
            "drone", vx=cosine * east + sine * north, vy=cosine * north - sine * east, vz=0.6 * (HEIGHT_M - here.z)
        )
