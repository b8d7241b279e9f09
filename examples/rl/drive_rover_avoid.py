"""Drive a trained policy through ROS 2: it subscribes to the scan and the odometry, and publishes commands.

    python drive_rover_avoid.py rover_avoid.npz --seed 7

Starts the simulator (`microsim run`) in the world of that seed, over DDS, in real time; `rviz2` and `ros2 topic echo`
can watch. The world is bit for bit the one the batch would have, with an odometer besides.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import policy

from microsim import load_scenario
from microsim import messages as wire
from microsim.learning.tasks.rover_avoid import RoverAvoid
from microsim.messages.topics import Qos

TWIST, SCAN, ODOMETRY = "geometry_msgs/msg/Twist", "sensor_msgs/msg/LaserScan", "nav_msgs/msg/Odometry"


def scenario_with_odometry() -> dict[str, Any]:
    scenario = RoverAvoid(1).scenario()
    scenario["robots"]["rover"]["odom"] = {"hz": 60}  # a sensor more changes no other's noise
    return scenario


def goal_of(seed: int) -> tuple[float, float]:
    task = RoverAvoid(1)
    task.reset(seeds=np.array([seed]))
    return float(task.goal[0, 0]), float(task.goal[1, 0])


class Driver:
    """A node that drives: scan and odometry in, commands out."""

    def __init__(self, transport: Any, weights: Any, goal: tuple[float, float]) -> None:
        self.transport, self.weights, self.goal = transport, np.asarray(weights)[None], goal
        self.distance = np.inf  # to the goal [m]
        self.last_seen: Any = None
        self._odometry: Any = None
        self._commands = transport.publisher("/rover/cmd_vel", TWIST, Qos(10))
        transport.subscribe("/rover/odom", ODOMETRY, Qos(10), self._on_odometry)
        transport.subscribe("/rover/scan", SCAN, Qos(5), self._on_scan)

    @property
    def has_arrived(self) -> bool:
        return bool(self.distance < RoverAvoid.goal_m)

    def _on_odometry(self, cdr: bytes) -> None:
        self._odometry = wire.decode(ODOMETRY, cdr)
        position = self._odometry.pose.pose.position
        self.distance = float(np.hypot(self.goal[0] - position.x, self.goal[1] - position.y))

    def _on_scan(self, cdr: bytes) -> None:
        if self._odometry is not None:
            self.last_seen = self.seen(wire.decode(SCAN, cdr).ranges, self._odometry)
            speed, turn = policy.actions(self.weights, self.last_seen[None, None])[0, 0].tolist()
            if self.has_arrived:
                speed = turn = 0.0
            most_v, most_omega = RoverAvoid.actions["rover"].values()
            fields = {"linear": {"x": speed * most_v}, "angular": {"z": turn * most_omega}}
            self._commands.publish(wire.encode(TWIST, wire.from_mapping(TWIST, fields)))

    def seen(self, ranges: Any, odometry: Any) -> Any:
        """The observation of `RoverAvoid`, from messages."""
        pose, twist = odometry.pose.pose, odometry.twist.twist
        z, w = pose.orientation.z, pose.orientation.w
        sine, cosine = 2.0 * w * z, w * w - z * z
        dx, dy = self.goal[0] - pose.position.x, self.goal[1] - pose.position.y
        shares = np.clip(np.nan_to_num(ranges, nan=RoverAvoid.reach_m), 0.0, RoverAvoid.reach_m) / RoverAvoid.reach_m
        offset = ((cosine * dx + sine * dy) / 15.0, (cosine * dy - sine * dx) / 15.0)
        seen = np.array([*shares, *offset, twist.linear.x * 0.5, twist.angular.z], np.float32)
        return seen.astype(np.float64)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = Path(__file__).parent
    parser.add_argument("weights", type=Path, nargs="?", default=here / "rover_avoid.npz")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=30.0, help="simulated, until it gives up")
    parser.add_argument("--rtf", type=float, default=1.0, help="real-time factor")
    options = parser.parse_args(arguments)
    from microsim.ros2.transport.dds import DdsTransport

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rover_avoid.yaml"
        file.write_text(load_scenario(scenario_with_odometry()).to_yaml(), encoding="utf-8")
        command = [sys.executable, "-m", "microsim", "run", str(file), "--headless", "--transport", "dds"]
        command += ["--seed", str(options.seed), "--rtf", str(options.rtf), "--duration", str(options.seconds)]
        driver = Driver(DdsTransport("driver", []), policy.load(options.weights), goal_of(options.seed))
        simulator = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        start = time.monotonic()
        while not driver.has_arrived and simulator.poll() is None:
            driver.transport.poll(0.02)
        simulator.terminate()
        simulator.wait()
    end = "arrived" if driver.has_arrived else f"{driver.distance:.1f} m short of the goal"
    print(f"seed {options.seed}: {end} after {time.monotonic() - start:.1f} s of wall time")
    return 0 if driver.has_arrived else 1


if __name__ == "__main__":
    sys.exit(main())
