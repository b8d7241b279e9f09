"""Pure pursuit: the car drives laps of worlds/oval by its odometry, and watches that it stays on the road.

    microsim run --world oval
    python pure_pursuit.py
    python pure_pursuit.py --ros-args -p speed:=5.0 -p laps:=2

Listens to ego/odom and sim/status, speaks on ego/ackermann_cmd.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple


class Pose(NamedTuple):
    x: float  # [m] rear axle, map frame
    y: float
    yaw: float  # [rad]


class Drive(NamedTuple):
    steering: float  # [rad]
    speed: float  # [m/s]


def pose_of(odometry: Any) -> Pose:
    """From a nav_msgs/Odometry; the car may be tilted."""
    place, q = odometry.pose.pose.position, odometry.pose.pose.orientation
    yaw = math.atan2(2.0 * (q.w * q.z + q.x * q.y), 1.0 - 2.0 * (q.y * q.y + q.z * q.z))
    return Pose(place.x, place.y, yaw)


def is_offroad(status: Any) -> bool:
    """From the diagnostic_msgs/DiagnosticArray on sim/status."""
    return any(pair.key == "is_offroad" and pair.value == "true" for each in status.status for pair in each.values)


def oval(half_straight_m: float = 40.0, radius_m: float = 30.0, step_m: float = 1.0) -> list[tuple[float, float]]:
    """The middle of the road of worlds/oval, counter-clockwise, from the middle of the southern straight."""
    straight, bend = 2.0 * half_straight_m, math.pi * radius_m
    points = []
    for index in range(round(2.0 * (straight + bend) / step_m)):
        way = index * step_m + half_straight_m  # from the western end of the southern straight
        lap_half, rest = divmod(way, straight + bend)
        if rest < straight:
            x, y = rest - half_straight_m, -radius_m
        else:
            angle = (rest - straight) / radius_m
            x, y = half_straight_m + radius_m * math.sin(angle), -radius_m * math.cos(angle)
        points.append((x, y) if lap_half % 2 == 0 else (-x, -y))
    return points


class PurePursuit:
    """Steers onto the circle through the rear axle, along its heading, and a point of the path ahead."""

    WHEELBASE_M = 2.7
    AHEAD_S = 0.9  # how far ahead to look, in seconds of driving
    LEAST_AHEAD_M = 4.0

    def __init__(self, path: Sequence[tuple[float, float]], speed: float = 8.0, laps: float = 1.0) -> None:
        self._path = path
        self._speed = speed
        self._points_to_go = laps * len(path)
        self._nearest: int | None = None

    @property
    def is_finished(self) -> bool:
        return self._points_to_go <= 0

    def command(self, pose: Pose) -> Drive:
        """What to drive, now that the car is here."""
        self._move_along(pose)
        if self.is_finished:
            return Drive(0.0, 0.0)
        x, y = self._ahead(pose)
        left = math.cos(pose.yaw) * y - math.sin(pose.yaw) * x  # of the point ahead, in the car's axes
        curvature = 2.0 * left / (x * x + y * y)
        return Drive(math.atan(self.WHEELBASE_M * curvature), self._speed)

    def _move_along(self, pose: Pose) -> None:
        """Find the nearest point of the path, not far from the last one."""
        count = len(self._path)
        first = self._nearest is None
        candidates = range(count) if self._nearest is None else range(self._nearest, self._nearest + 20)
        near = min(candidates, key=lambda i: math.dist(self._path[i % count], pose[:2]))
        if not first:
            self._points_to_go -= near - (self._nearest or 0)
        self._nearest = near

    def _ahead(self, pose: Pose) -> tuple[float, float]:
        """The first point of the path that is far enough ahead, relative to the car."""
        wanted, index = max(self.LEAST_AHEAD_M, self.AHEAD_S * self._speed), self._nearest or 0
        for _ in self._path:
            x, y = self._path[index % len(self._path)]
            if math.hypot(x - pose.x, y - pose.y) >= wanted:
                break
            index += 1
        return x - pose.x, y - pose.y


def main() -> None:
    import rclpy
    from ackermann_msgs.msg import AckermannDriveStamped
    from diagnostic_msgs.msg import DiagnosticArray
    from nav_msgs.msg import Odometry
    from rclpy.executors import ExternalShutdownException
    from rclpy.parameter import Parameter

    rclpy.init()
    node = rclpy.create_node("pure_pursuit", parameter_overrides=[Parameter("use_sim_time", value=True)])
    speed = node.declare_parameter("speed", 8.0).value
    laps = node.declare_parameter("laps", 1.0).value
    pursuit = PurePursuit(oval(), speed, laps)
    publisher = node.create_publisher(AckermannDriveStamped, "ego/ackermann_cmd", 10)
    seen = {"status": 0, "offroad": 0}

    def on_odometry(message: Any) -> None:
        drive = pursuit.command(pose_of(message))
        command = AckermannDriveStamped()
        command.header.stamp = message.header.stamp
        command.drive.steering_angle, command.drive.speed = drive.steering, drive.speed
        publisher.publish(command)

    def on_status(message: Any) -> None:
        seen["status"] += 1
        seen["offroad"] += is_offroad(message)

    node.create_subscription(Odometry, "ego/odom", on_odometry, 10)
    node.create_subscription(DiagnosticArray, "sim/status", on_status, 10)
    try:
        while rclpy.ok() and not pursuit.is_finished:
            rclpy.spin_once(node, timeout_sec=0.1)
        node.get_logger().info(f"done: off the road in {seen['offroad']} of {seen['status']} looks")
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
