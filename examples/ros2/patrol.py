"""Hover and patrol: the drone flies a square by its odometry and counts the images its camera takes on the way.

    python patrol.py
    python patrol.py --ros-args -p side_m:=10.0 -p laps:=3

Listens to drone/odom and drone/camera/image_raw, speaks on drone/cmd_vel.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple


class Pose(NamedTuple):
    x: float  # [m], map frame
    y: float
    z: float
    yaw: float  # [rad]


class Velocity(NamedTuple):
    vx: float = 0.0  # [m/s], the drone's own axes: forward, left, up
    vy: float = 0.0
    vz: float = 0.0


def pose_of(odometry: Any) -> Pose:
    """From a nav_msgs/Odometry."""
    position, turn = odometry.pose.pose.position, odometry.pose.pose.orientation
    return Pose(position.x, position.y, position.z, 2.0 * math.atan2(turn.z, turn.w))


class SquarePatrol:
    """East, north, west, south and home again, at the height and heading of the first pose."""

    SPEED = 3.0  # [m/s]
    GAIN = 1.0  # [1/s] metres off to metres per second
    REACHED_M = 0.5

    def __init__(self, side_m: float = 20.0, laps: int = 1) -> None:
        corners = [(side_m, 0.0), (side_m, side_m), (0.0, side_m), (0.0, 0.0)]
        self._ways = corners * laps  # still ahead, relative to home
        self._home: Pose | None = None

    @property
    def is_finished(self) -> bool:
        return not self._ways

    def command(self, pose: Pose) -> Velocity:
        """What to fly, now that the drone is here."""
        home = self._home = self._home or pose
        while self._ways:
            east, north = home.x + self._ways[0][0] - pose.x, home.y + self._ways[0][1] - pose.y
            distance = math.hypot(east, north)
            if distance > self.REACHED_M:
                speed = min(self.SPEED, self.GAIN * distance) / distance
                return self._in_own_axes(speed * east, speed * north, self.GAIN * (home.z - pose.z), pose.yaw)
            self._ways.pop(0)
        return Velocity()

    @staticmethod
    def _in_own_axes(east: float, north: float, up: float, yaw: float) -> Velocity:
        cosine, sine = math.cos(yaw), math.sin(yaw)
        return Velocity(cosine * east + sine * north, cosine * north - sine * east, up)


def main() -> None:
    import rclpy
    from geometry_msgs.msg import Twist
    from nav_msgs.msg import Odometry
    from rclpy.executors import ExternalShutdownException
    from rclpy.parameter import Parameter
    from rclpy.qos import QoSProfile
    from rclpy.signals import SignalHandlerOptions
    from sensor_msgs.msg import Image

    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)  # so that Ctrl-C leaves time to stop the drone
    node = rclpy.create_node("patrol", parameter_overrides=[Parameter("use_sim_time", value=True)])
    patrol = SquarePatrol(
        node.declare_parameter("side_m", 20.0).value,
        node.declare_parameter("laps", 1).value,
    )
    images = []
    # QoSProfile(depth=n) is reliable, volatile and keeps the last n: as the simulator publishes.
    commands = node.create_publisher(Twist, "drone/cmd_vel", QoSProfile(depth=10))

    def on_odometry(message: Odometry) -> None:
        command, twist = patrol.command(pose_of(message)), Twist()
        twist.linear.x, twist.linear.y, twist.linear.z = command
        commands.publish(twist)

    node.create_subscription(Odometry, "drone/odom", on_odometry, QoSProfile(depth=10))
    node.create_subscription(Image, "drone/camera/image_raw", lambda image: images.append(image.header.stamp), 2)
    try:
        while not patrol.is_finished:
            rclpy.spin_once(node, timeout_sec=0.1)
        node.get_logger().info(f"home again, with {len(images)} images")
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        commands.publish(Twist())
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
