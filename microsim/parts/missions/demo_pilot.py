"""A small pilot for `microsim run --autopilot`, and an example of how to write one.

It receives only messages and commands robots through the public API, so the same scenario and seed give the same run:
- every robot that flies goes round a square at a height of 10 m and radios its position once a second;
- every robot that turns and drives wanders, avoids what its range sensor detects, and answers.
Which is which a robot declares as its `follower`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from microsim.engine import exact  # the same bits on every machine, which math does not promise
from microsim.messages.outbox import Message
from microsim.parts.missions.follower import steer_for
from microsim.simulation import Simulation

SIDE_M, HEIGHT_M = 20.0, 10.0  # of the square
ARRIVED_M = 1.5  # close enough, even in gusts
CRUISE_M_PER_S, CRAWL_M_PER_S = 3.0, 0.6
CLOSE_M, CLEAR_M = 2.5, 4.0  # a driving robot turns away below the first, and drives on above the second
GREETING = b"position"


class FlyingPilot:
    """Flies from corner to corner by odometry."""

    def __init__(self, sim: Simulation, name: str) -> None:
        self.sim, self.name = sim, name
        self.corners: list[tuple[float, float]] = []
        self.target = 0
        self.position = (0.0, 0.0, 0.0)

    def receive(self, topic: str, message: Any) -> None:
        if topic == f"/{self.name}/odom":
            here, turned = message.pose.pose.position, message.pose.pose.orientation
            self.position = (here.x, here.y, here.z)
            self.fly(2.0 * exact.atan2(turned.z, turned.w))

    def fly(self, yaw: float) -> None:
        x, y, z = self.position
        if not self.corners:
            self.corners = [(x + SIDE_M, y), (x + SIDE_M, y + SIDE_M), (x, y + SIDE_M), (x, y)]
        east, north = self.corners[self.target][0] - x, self.corners[self.target][1] - y
        distance = math.sqrt(east * east + north * north)
        if distance < ARRIVED_M:
            self.target = (self.target + 1) % len(self.corners)
        direction = exact.atan2(north, east) - yaw
        speed = min(CRUISE_M_PER_S, 1.5 * distance)
        self.sim.command(
            self.name,
            vx=speed * exact.cos(direction),
            vy=speed * exact.sin(direction),
            vz=HEIGHT_M - z,
            yaw_rate=1.5 * wrapped(direction),  # faces where it flies
        )

    def second(self, number: int) -> None:
        x, y, z = self.position
        self.sim.radio_send(self.name, GREETING + f" {x:.2f} {y:.2f} {z:.2f}".encode())


class DrivingPilot:
    """Drives in wide curves, and turns on the spot while something is close ahead.

    Its sensor does not detect the edge of the map; there the wheels stop, and it reverses.
    """

    def __init__(self, sim: Simulation, name: str) -> None:
        self.sim, self.name = sim, name
        self.curve = -0.2  # [rad/s]
        self.ahead_m = math.inf
        self.is_turning = False
        self.stuck = 0  # odometry messages without motion
        self.escaping = 0  # seconds left

    def receive(self, topic: str, message: Any) -> None:
        if topic == f"/{self.name}/range/front":
            self.see(message.range)
        elif topic == f"/{self.name}/odom":
            self.feel(message.twist.twist.linear.x)
        elif topic == f"/radio/{self.name}_rx" and message.data.tobytes().startswith(GREETING):
            self.sim.radio_send(self.name, b"heard " + message.data.tobytes())

    def see(self, distance: float) -> None:
        if math.isnan(distance):  # a dropout
            return
        self.ahead_m = distance
        self.is_turning = distance < (CLEAR_M if self.is_turning else CLOSE_M)
        self.drive()

    def feel(self, speed: float) -> None:
        is_blocked = not self.is_turning and not self.escaping and abs(speed) < 0.01
        self.stuck = self.stuck + 1 if is_blocked else 0
        if self.stuck > 20:
            self.escaping, self.stuck = 3, 0

    def drive(self) -> None:
        if self.escaping:
            v, omega = -0.8, -0.7
        elif self.is_turning:
            v, omega = (-0.3 if self.ahead_m < 0.5 * CLOSE_M else 0.0), -0.9
        else:
            v, omega = min(CRUISE_M_PER_S, max(CRAWL_M_PER_S, 0.25 * self.ahead_m)), self.curve
        self.sim.command(self.name, v=v, omega=omega)

    def second(self, number: int) -> None:
        self.escaping = max(self.escaping - 1, 0)
        if number % 5 == 0:  # another curve, wide or narrow, in an irregular order
            self.curve = -0.08 * (1 + (number // 5 * 7) % 5)
        self.drive()


PILOTS: dict[str, type[FlyingPilot] | type[DrivingPilot]] = {"fly": FlyingPilot, "turn_and_drive": DrivingPilot}


class DemoPilot:
    """Pilots for the robots of a simulation. Call it with each tick's messages; it commands for the next tick."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.pilots = [
            PILOTS[robot.follower](sim, name)
            for name, robot in sim.scenario.robots.items()
            if robot.follower in PILOTS and steer_for(robot.engine_model, robot) is not None
        ]
        self.has_radio = sim.radio is not None
        self.next_second: int | None = None
        self.subscribers = {
            topic: pilot
            for pilot in self.pilots
            for topic in (f"/{pilot.name}/odom", f"/{pilot.name}/range/front", f"/radio/{pilot.name}_rx")
        }

    def __call__(self, messages: Sequence[Message]) -> None:
        for message in messages:
            pilot = self.subscribers.get(message.topic)
            if pilot is not None:
                pilot.receive(message.topic, message.message)
        if self.next_second is None:  # it may start in the middle of a run
            self.next_second = self.sim.time_ns // 1_000_000_000
        if self.sim.time_ns >= self.next_second * 1_000_000_000:
            for pilot in self.pilots:
                if self.has_radio or isinstance(pilot, DrivingPilot):
                    pilot.second(self.next_second)
            self.next_second += 1


def wrapped(angle: float) -> float:
    """Within ±π."""
    return math.remainder(angle, 2.0 * math.pi)
