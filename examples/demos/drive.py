"""The car drives a figure of eight round two pillars of the world bundle `minimal_test`, and stays on the road.

    microsim demo drive

Pure pursuit: look a few metres ahead on the track, and steer the arc that leads there. The bundle brings the ground,
the drivable area, the car's cameras and its LiDAR; the two pillars are obstacles of this scenario.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from microsim import Message, Simulation
from microsim.engine import exact  # sine and cosine with the same bits on every machine

SCENARIO = {
    "name": "drive",
    "world": "minimal_test",
    "obstacles": [
        {"type": "cylinder", "center": [-9, 0, 0], "radius": 1.2, "height": 3},
        {"type": "cylinder", "center": [9, 0, 0], "radius": 1.2, "height": 3, "class": "hazard"},
        {"type": "box", "center": [0, 17, 0], "size": [10, 1.5, 1.5]},
    ],
    "robots": {"ego": {"start": {"map_pose": {"x": 0, "y": 0, "yaw": -1.5708}}}},
}
RADIUS_M, SPEED, AHEAD_M, WHEELBASE_M = 9.0, 5.0, 4.0, 2.7  # [m/s]
POINTS = 120


def eight() -> list[tuple[float, float]]:
    """Points of the track: round the eastern pillar counter-clockwise, then round the western one clockwise."""
    half = POINTS // 2
    angles = [2.0 * exact.PI * k / half for k in range(half)]
    east = [(RADIUS_M - RADIUS_M * exact.cos(a), -RADIUS_M * exact.sin(a)) for a in angles]
    west = [(-RADIUS_M + RADIUS_M * exact.cos(a), -RADIUS_M * exact.sin(a)) for a in angles]
    return east + west


class Pilot:
    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.track = eight()
        self.at = 0  # nearest point of the track
        self.waypoints = {"ego": tuple((x, y, sim.world.ground(x, y) + 0.2) for x, y in [*self.track, self.track[0]])}

    def __call__(self, messages: Sequence[Message]) -> None:
        for each in messages:
            if each.topic == "/ego/odom":
                self.steer(each.message.pose.pose)

    def steer(self, pose: Any) -> None:
        here, turn = pose.position, pose.orientation
        yaw = exact.atan2(2.0 * (turn.w * turn.z + turn.x * turn.y), 1.0 - 2.0 * (turn.y * turn.y + turn.z * turn.z))
        window = [(self.at + k) % POINTS for k in range(12)]  # only forward: the eight crosses itself
        self.at = min(window, key=lambda k: (self.track[k][0] - here.x) ** 2 + (self.track[k][1] - here.y) ** 2)
        goal = self.track[(self.at + round(AHEAD_M * POINTS / (4.0 * math.pi * RADIUS_M))) % POINTS]
        east, north = goal[0] - here.x, goal[1] - here.y
        aside = exact.cos(yaw) * north - exact.sin(yaw) * east
        curvature = 2.0 * aside / max(east * east + north * north, 0.01)
        self.sim.command("ego", speed=SPEED, steering=exact.atan2(WHEELBASE_M * curvature, 1.0))
