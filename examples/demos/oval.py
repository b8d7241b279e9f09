"""A car laps the oval at speed with its LiDAR sweeping, while a drone flies along and films it.

    microsim demo oval

Pure pursuit: the car looks ahead on the centre line and steers the arc that leads there; it brakes for the bends and
accelerates on the straights. It radios its position, and the drone flies to where the car will be. The world is a
bundle of Gaussian splats, and both cameras show them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from microsim import Message, Simulation, exact  # sine and cosine with the same bits on every machine

LENS = {"fx": 125.0, "fy": 125.0, "cx": 95.5, "cy": 71.5}
SMALL = {
    "resolution": {"width": 192, "height": 144},
    "intrinsics": LENS,
    "hz": 4,
    "render": "splat",
}  # two cores suffice
SCENARIO = {
    "name": "oval",
    "world": "oval",
    "seed": 4,
    "robots": {
        "ego": {
            "start": {"map_pose": {"x": -12, "y": -30}},
            "max_speed": 20,
            "sensors": {
                "camera_front": SMALL,
                "camera_front_left": None,
                "camera_front_right": None,
                "lidar_top": {"columns": 360, "hz": 10},
            },
        },
        "drone": {
            "start": {"map_pose": {"x": -26, "y": -36, "z": 9}},
            "max_vx": 20,
            "max_vy": 20,
            "camera": {**SMALL, "mount": {"xyz": [0.2, 0, 0], "rpy": [-2.09, 0, -1.5708]}},
        },
    },
}
HALF_STRAIGHT_M, RADIUS_M = 40.0, 30.0  # of the centre line
FAST, BEND, EASE_M = 16.0, 11.0, 14.0  # [m/s] on the straights and in the bends; braking distance
AHEAD_S, WHEELBASE_M = 0.7, 2.7
BEHIND_M, BESIDE_M, ABOVE_M = 11.0, 5.0, 5.5  # where the drone flies, seen from the car
LAPS = 2
LENGTH_M = 4.0 * HALF_STRAIGHT_M + 2.0 * math.pi * RADIUS_M


def along(s: float) -> tuple[float, float]:
    """The point of the centre line s metres from the start of the southern straight, counter-clockwise."""
    straight, bend = 2.0 * HALF_STRAIGHT_M, math.pi * RADIUS_M
    s = s - LENGTH_M * (s // LENGTH_M)
    if s < straight:
        return s - HALF_STRAIGHT_M, -RADIUS_M
    if s < straight + bend:
        turn = (s - straight) / RADIUS_M
        return HALF_STRAIGHT_M + RADIUS_M * exact.sin(turn), -RADIUS_M * exact.cos(turn)
    if s < 2.0 * straight + bend:
        return HALF_STRAIGHT_M - (s - straight - bend), RADIUS_M
    turn = (s - 2.0 * straight - bend) / RADIUS_M
    return -HALF_STRAIGHT_M - RADIUS_M * exact.sin(turn), RADIUS_M * exact.cos(turn)


def progress(x: float, y: float) -> float:
    """The inverse of `along`, for a place near the line."""
    straight, bend = 2.0 * HALF_STRAIGHT_M, math.pi * RADIUS_M
    if abs(x) <= HALF_STRAIGHT_M:
        return x + HALF_STRAIGHT_M if y < 0.0 else straight + bend + HALF_STRAIGHT_M - x
    if x > 0.0:
        return straight + RADIUS_M * (0.5 * math.pi + exact.atan2(y, x - HALF_STRAIGHT_M))
    return 2.0 * straight + bend + RADIUS_M * (0.5 * math.pi + exact.atan2(-y, -x - HALF_STRAIGHT_M))


def speed_at(s: float) -> float:
    """Fast on the straights, slower in the bends and shortly before them."""
    to_bend = 2.0 * HALF_STRAIGHT_M - s % (LENGTH_M / 2.0)
    return BEND if to_bend <= 0.0 else BEND + (FAST - BEND) * min(to_bend / EASE_M, 1.0)


class Pilot:
    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.car = (-12.0, -30.0, 0.0, 0.0)  # as the drone last received it: x, y, yaw, speed
        self.at_m, self.lap_began_s, self.laps = 0.0, 0.0, 0
        self.events: list[tuple[float, str]] = []  # the page shows them
        self.is_done = False
        line = [along(LENGTH_M * k / 90) for k in range(91)]
        self.waypoints = {"ego": tuple((x, y, sim.world.ground(x, y) + 0.1) for x, y in line)}

    def __call__(self, messages: Sequence[Message]) -> None:
        for each in messages:
            if each.topic == "/ego/odom":
                self.drive(each.message, each.stamp_ns / 1e9)
            elif each.topic == "/radio/drone_rx":
                x, y, yaw, speed = (float(word) for word in each.message.data.tobytes().split())
                self.car = x, y, yaw, speed
            elif each.topic == "/drone/odom":
                self.film(each.message.pose.pose)

    def drive(self, message: Any, now_s: float) -> None:
        here, turn, speed = message.pose.pose.position, message.pose.pose.orientation, message.twist.twist.linear.x
        yaw = exact.atan2(2.0 * (turn.w * turn.z + turn.x * turn.y), 1.0 - 2.0 * (turn.y * turn.y + turn.z * turn.z))
        before, self.at_m = self.at_m, progress(here.x, here.y)
        x, y = along(self.at_m + max(5.0, AHEAD_S * speed))
        east, north = x - here.x, y - here.y
        aside = exact.cos(yaw) * north - exact.sin(yaw) * east
        curvature = 2.0 * aside / max(east * east + north * north, 0.01)
        self.sim.command("ego", speed=speed_at(self.at_m), steering=exact.atan2(WHEELBASE_M * curvature, 1.0))
        self.report(before, now_s)
        if round(now_s * 100.0) % 10 == 0:
            self.sim.radio_send("ego", f"{here.x:.2f} {here.y:.2f} {yaw:.3f} {speed:.2f}".encode())

    def report(self, before_m: float, now_s: float) -> None:
        """The line across the southern straight ends a lap."""
        if not before_m < HALF_STRAIGHT_M <= self.at_m or before_m < 1.0:
            return
        if self.lap_began_s:
            self.laps += 1
            self.events.append((now_s, f"lap {self.laps}: {now_s - self.lap_began_s:.1f} s"))
        else:
            self.events.append((now_s, "the car crosses the start line"))
        self.lap_began_s = now_s
        self.is_done = self.laps >= LAPS

    def film(self, pose: Any) -> None:
        """Stay behind and beside the car, and keep the camera on it."""
        here, turn = pose.position, pose.orientation
        x, y, heading, speed = self.car
        cosine, sine = exact.cos(heading), exact.sin(heading)
        ahead = 0.1 * speed - BEHIND_M  # packets are a tenth of a second old
        goal = x + cosine * ahead + sine * BESIDE_M, y + sine * ahead - cosine * BESIDE_M
        east, north = speed * cosine + 1.2 * (goal[0] - here.x), speed * sine + 1.2 * (goal[1] - here.y)
        yaw = 2.0 * exact.atan2(turn.z, turn.w)
        bearing = math.remainder(exact.atan2(y - here.y, x - here.x) - yaw, 2.0 * math.pi)
        up = self.sim.world.ground(x, y) + ABOVE_M - here.z
        self.sim.command(
            "drone",
            vx=exact.cos(yaw) * east + exact.sin(yaw) * north,
            vy=exact.cos(yaw) * north - exact.sin(yaw) * east,
            vz=up,
            yaw_rate=2.5 * bearing,
        )
