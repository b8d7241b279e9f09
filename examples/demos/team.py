"""The drone finds the blue target in its camera and radios where it is; the rover drives there by its range beam.

    microsim demo team

Neither knows the map. The drone sweeps lanes until blue pixels appear, turns the middle of them into a place on the
ground (a pinhole camera, its height, and where it was when the image was taken), and radios that place again and again,
because packets get lost. The rover aims at it, turns away from what its beam meets, passes, and aims again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from microsim import Message, Simulation, exact  # sine and cosine with the same bits on every machine

SCENARIO = {
    "name": "team",
    "seed": 11,
    "map": {"size_xy_cells": [60, 60]},
    "obstacles": [
        {"type": "box", "center": [18, 14, 0], "size": [8, 2, 2]},
        {"type": "box", "center": [30, 24, 0], "size": [2, 10, 2.5]},
        {"type": "cylinder", "center": [24, 33, 0], "radius": 2, "height": 3},
        {"type": "cylinder", "center": [38, 36, 0], "radius": 1.5, "height": 2},
        {"type": "box", "center": [44, 22, 0], "size": [4, 4, 3]},
        {"type": "box", "center": [14, 40, 0], "size": [6, 2, 1.5], "class": "hazard"},
    ],
    "features": [
        {"type": "rectangle", "class": "target", "center": [45, 44], "size": [3, 3]},
        {"type": "circle", "class": "water", "center": [12, 26], "radius": 4},
        {"type": "triangle", "class": "hazard", "center": [36, 12], "side": 4},
        {"type": "circle", "class": "obstacle", "center": [50, 32], "radius": 1, "height": 0.8},
    ],
    "robots": {
        "drone": {"start": {"map_pose": {"x": 6, "y": 8, "z": 4}}, "camera": {"hz": 5}},
        "rover": {"start": {"map_pose": {"x": 6, "y": 5, "yaw": 0.7}}, "range": {"max_m": 12}},
    },
    "radio": {"drop_probability": 0.2},
    "wind": {"world_xyz": [0.4, 0.2, 0.0]},
}
HEIGHT_M, LANE_M, FLY = 15.0, 13.0, 4.0  # of the sweep; [m/s]
BLUE = (0x34, 0x98, 0xDB)
DRIVE, TURN_RAD_PER_S = 1.8, 1.0  # [m/s]
NEAR_M, CLEAR_M, PASS_M, ARRIVED_M = 2.4, 5.0, 4.0, 1.0


def heading(orientation: Any) -> float:
    return 2.0 * exact.atan2(orientation.z, orientation.w)


class Scout:
    """The drone."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.lanes = [(x, y) for k in range(4) for y in [8 + k * LANE_M] for x in ((6, 54) if k % 2 == 0 else (54, 6))]
        self.poses: deque[tuple[int, tuple[float, float, float, float]]] = deque(maxlen=60)  # by stamp [ns]
        self.camera: Any = None  # CameraInfo
        self.target: tuple[float, float] | None = None

    def fly(self, message: Any, stamp_ns: int) -> None:
        here, yaw = message.pose.pose.position, heading(message.pose.pose.orientation)
        self.poses.append((stamp_ns, (here.x, here.y, here.z, yaw)))
        goal = self.target or self.lanes[0]
        east, north = goal[0] - here.x, goal[1] - here.y
        distance = math.sqrt(east * east + north * north)
        if self.target is None and distance < 1.5:
            self.lanes.append(self.lanes.pop(0))  # round and round
        speed = min(FLY, 0.9 * distance) / max(distance, 1e-9)
        sine, cosine = exact.sin(yaw), exact.cos(yaw)
        ahead, aside = speed * (cosine * east + sine * north), speed * (cosine * north - sine * east)
        self.sim.command("drone", vx=ahead, vy=aside, vz=0.8 * (HEIGHT_M - here.z))

    def look(self, image: Any, stamp_ns: int) -> None:
        """Every image that shows all of the target tells where it is; then it is radioed."""
        pixels = np.frombuffer(image.data, np.uint8).reshape(image.height, image.width, 3).astype(int)
        rows, columns = np.nonzero(np.abs(pixels - BLUE).max(axis=2) < 30)
        inside = len(rows) > 15 and rows.min() > 0 and rows.max() < image.height - 1
        if inside and columns.min() > 0 and columns.max() < image.width - 1 and self.camera is not None:
            _, (x, y, z, yaw) = min(self.poses, key=lambda item: abs(item[0] - stamp_ns))  # where it was taken from
            fx, cx, fy, cy = (float(self.camera.k[at]) for at in (0, 2, 4, 5))
            ahead, left = -(rows.sum() / len(rows) - cy) / fy * z, -(columns.sum() / len(columns) - cx) / fx * z
            sine, cosine = exact.sin(yaw), exact.cos(yaw)
            self.target = float(x + cosine * ahead - sine * left), float(y + sine * ahead + cosine * left)
        if self.target is not None:
            self.sim.radio_send("drone", f"target {self.target[0]:.2f} {self.target[1]:.2f}".encode())


class Driver:
    """The rover. It has its odometry, the packets it received, and the free distance ahead."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.target: tuple[float, float] | None = None
        self.free_m, self.clear = math.inf, 0  # the last reading; clear ones in a row
        self.mode, self.passed_from = "aim", (0.0, 0.0)
        self.there = 0  # odometry messages since it arrived

    def hear(self, payload: bytes) -> None:
        word, x, y = payload.decode().split()
        if word == "target":
            self.target = float(x), float(y)

    def see(self, distance: float) -> None:
        if not math.isnan(distance):  # a dropout says nothing
            self.free_m = distance
            self.clear = self.clear + 1 if distance > CLEAR_M else 0

    def drive(self, pose: Any) -> None:
        if self.target is None:
            return
        x, y, yaw = pose.position.x, pose.position.y, heading(pose.orientation)
        east, north = self.target[0] - x, self.target[1] - y
        distance = math.sqrt(east * east + north * north)
        bearing = math.remainder(exact.atan2(north, east) - yaw, 2.0 * math.pi)
        v, omega = 0.0, 0.0
        if distance < ARRIVED_M:
            self.there += 1
            if self.there % 30 == 1:  # about once a second
                self.sim.radio_send("rover", b"arrived")
        elif self.mode == "turn":
            omega = TURN_RAD_PER_S
            if self.clear >= 4:  # one beam sees one line: a little beyond the edge
                self.mode, self.passed_from = "pass", (x, y)
        elif self.free_m < min(NEAR_M, distance):
            self.mode, self.clear = "turn", 0
        elif self.mode == "pass":
            v = DRIVE
            if math.dist(self.passed_from, (x, y)) > PASS_M:
                self.mode = "aim"
        else:
            v, omega = (DRIVE if abs(bearing) < 0.4 else 0.0), 1.6 * bearing
        self.sim.command("rover", v=v, omega=omega)


class Pilot:
    """Who gets which message."""

    def __init__(self, sim: Simulation) -> None:
        self.scout, self.driver = Scout(sim), Driver(sim)
        self.events: list[tuple[float, str]] = []  # the page shows them

    @property
    def is_done(self) -> bool:
        return self.driver.there > 90  # for three seconds

    def report(self, now_s: float) -> None:
        """A line for each step of the task, once."""
        steps = (
            (self.scout.target is not None, "the drone found the target in its camera"),
            (self.driver.target is not None, "the rover received the target's position by radio"),
            (self.driver.mode == "turn", "the rover's beam met an obstacle: it turns away"),
            (self.driver.there > 0, "the rover reached the target"),
        )
        known = {words for _, words in self.events}
        self.events += [(now_s, words) for is_reached, words in steps if is_reached and words not in known]

    @property
    def waypoints(self) -> dict[str, tuple[tuple[float, float, float], ...]]:
        """The page shows them."""
        found = {"drone": tuple((x, y, HEIGHT_M) for x, y in self.scout.lanes)} if self.scout.target is None else {}
        return found if self.driver.target is None else {**found, "rover": ((*self.driver.target, 0.3),)}

    def __call__(self, messages: Sequence[Message]) -> None:
        for each in messages:
            if each.topic == "/drone/odom":
                self.scout.fly(each.message, each.stamp_ns)
            elif each.topic == "/drone/camera/camera_info":
                self.scout.camera = each.message
            elif each.topic == "/drone/camera/image_raw":
                self.scout.look(each.message, each.stamp_ns)
            elif each.topic == "/rover/range/front":
                self.driver.see(each.message.range)
            elif each.topic == "/radio/rover_rx":
                self.driver.hear(each.message.data.tobytes())
            elif each.topic == "/rover/odom":
                self.driver.drive(each.message.pose.pose)
                self.report(each.stamp_ns / 1e9)
