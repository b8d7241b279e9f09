"""The drone flies a square over the village while the rover drives its own round; both radio their positions.

    microsim demo patrol

Each robot follows a list of corners by its odometry. `Follower` turns "where am I, where to" into a command; the pilot
hands it the newest odometry and sends what it says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from microsim import Message, Simulation, exact  # sine and cosine with the same bits on every machine

SCENARIO = "showcase"
ROUNDS = {
    "drone": ((16.0, 18.0, 14.0), (40.0, 18.0, 14.0), (40.0, 40.0, 16.0), (16.0, 40.0, 14.0)),
    "rover": ((20.0, 13.0, 0.0), (21.5, 21.0, 0.0), (10.0, 21.0, 0.0), (9.0, 12.0, 0.0)),
}
SPEED = {"drone": 3.5, "rover": 1.4}  # [m/s]
REACHED_M = 1.2
RADIO_S = 0.5
LAPS = 1  # of the drone; then the patrol is over


class Follower:
    """From corner to corner, round and round."""

    def __init__(self, corners: Sequence[tuple[float, float, float]], speed: float) -> None:
        self.corners, self.speed, self.next, self.passed = corners, speed, 0, 0

    def steer(self, x: float, y: float, z: float, yaw: float) -> tuple[float, float, float, float]:
        """(distance, bearing from ahead, climb, speed) to the next corner."""
        corner = self.corners[self.next]
        east, north = corner[0] - x, corner[1] - y
        distance = math.sqrt(east * east + north * north)
        if distance < REACHED_M:
            self.next, self.passed = (self.next + 1) % len(self.corners), self.passed + 1
        bearing = math.remainder(exact.atan2(north, east) - yaw, 2.0 * math.pi)
        return distance, bearing, corner[2] - z, min(self.speed, 0.8 + distance)  # never so slow that the wind wins


class Pilot:
    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.followers = {robot: Follower(corners, SPEED[robot]) for robot, corners in ROUNDS.items()}
        self.waypoints = {robot: (*corners, corners[0]) for robot, corners in ROUNDS.items()}  # the page shows them
        self.next_packet_s = {"drone": 0.0, "rover": 0.25}
        self.events: list[tuple[float, str]] = []  # the page shows them
        self.is_done = False

    def __call__(self, messages: Sequence[Message]) -> None:
        for each in messages:
            if each.topic == "/drone/odom":
                self.move("drone", each.message.pose.pose, each.stamp_ns / 1e9)
            elif each.topic == "/rover/odom":
                self.move("rover", each.message.pose.pose, each.stamp_ns / 1e9)

    def report(self, robot: str, follower: Follower, now_s: float) -> None:
        laps, corner = divmod(follower.passed, len(follower.corners))
        words = (
            f"the {robot} passed corner {corner} of lap {laps + 1}" if corner else f"the {robot} finished lap {laps}"
        )
        self.events.append((now_s, words))
        self.is_done = self.is_done or (robot == "drone" and laps >= LAPS)

    def move(self, robot: str, pose: Any, now_s: float) -> None:
        here, turn = pose.position, pose.orientation
        yaw = 2.0 * exact.atan2(turn.z, turn.w)
        follower = self.followers[robot]
        before = follower.passed
        _, bearing, climb, speed = follower.steer(here.x, here.y, here.z, yaw)
        if follower.passed > before:
            self.report(robot, follower, now_s)
        if robot == "drone":  # flies any way at once, and turns its nose after it
            ahead, aside = speed * exact.cos(bearing), speed * exact.sin(bearing)
            self.sim.command("drone", vx=ahead, vy=aside, vz=0.8 * climb, yaw_rate=bearing)
        else:  # has to turn first
            self.sim.command("rover", v=speed * max(exact.cos(bearing), 0.0), omega=1.5 * bearing)
        if now_s >= self.next_packet_s[robot]:
            self.next_packet_s[robot] += RADIO_S
            self.sim.radio_send(robot, f"{robot} at {here.x:.1f} {here.y:.1f}".encode())
