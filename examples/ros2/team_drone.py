"""Team task, the drone's part: sweep the yard, find the blue target in the camera image, radio its place to the rover.

    microsim run examples/ros2/team_task.yaml      (in another terminal)
    python team_drone.py                           (and team_rover.py in a third)

Listens to drone/odom, drone/camera/image_raw, drone/camera/camera_info and radio/drone_rx; speaks on drone/cmd_vel and
radio/drone_tx. Ends when the rover radios that it has arrived.
"""

from __future__ import annotations

import json
import math
from collections import deque
from typing import Any, NamedTuple

import numpy as np

TARGET_COLOUR = (0x34, 0x98, 0xDB)
CAMERA_FORWARD_M, CAMERA_UP_M = 0.10, -0.05  # where the camera sits on the drone (in /tf_static), looking down


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
    position, turn = odometry.pose.pose.position, odometry.pose.pose.orientation
    return Pose(position.x, position.y, position.z, 2.0 * math.atan2(turn.z, turn.w))


def nanoseconds(stamp: Any) -> int:
    return stamp.sec * 1_000_000_000 + stamp.nanosec


def target_pixel(image: Any, least_pixels: int = 12) -> tuple[float, float] | None:
    """(u, v) of the middle of the target in an rgb8 image; None when there is none, or only a part of it."""
    pixels = np.frombuffer(image.data, np.uint8).reshape(image.height, image.width, 3).astype(int)
    rows, columns = np.nonzero(np.abs(pixels - TARGET_COLOUR).max(axis=2) < 30)
    if len(rows) < least_pixels:
        return None
    is_cut_off = rows.min() == 0 or columns.min() == 0 or rows.max() == image.height - 1
    if is_cut_off or columns.max() == image.width - 1:
        return None
    return float(columns.mean()), float(rows.mean())


def on_the_ground(pixel: tuple[float, float], camera_info: Any, pose: Pose) -> tuple[float, float]:
    """Map position (x, y) [m] of a pixel of the camera that looks down from `pose`, over level ground at height 0.

    The top of the image is the drone's forward, its right the drone's right.
    """
    fx, _, cx, _, fy, cy = (float(value) for value in camera_info.k[:6])
    height = pose.z + CAMERA_UP_M
    forward = CAMERA_FORWARD_M - (pixel[1] - cy) / fy * height
    left = -(pixel[0] - cx) / fx * height
    cosine, sine = math.cos(pose.yaw), math.sin(pose.yaw)
    return pose.x + cosine * forward - sine * left, pose.y + sine * forward + cosine * left


class Scout:
    """Sweeps lanes until it sees the target, then hovers above it and radios where it is, until the rover is there."""

    SPEED, GAIN, REACHED_M = 3.0, 0.8, 1.0  # [m/s], [1/s], [m]
    LANE_M = 14.0  # the camera sees a strip of 19 m from a height of 18 m

    def __init__(self, area: tuple[float, float, float, float] = (8.0, 8.0, 52.0, 52.0)) -> None:
        self.target: tuple[float, float] | None = None
        self.is_finished = False
        self._ways = self._lanes(*area)
        self._poses: deque[tuple[int, Pose]] = deque(maxlen=60)  # of the last two seconds, by stamp [ns]
        self._camera_info: Any = None
        self._height: float | None = None

    def _lanes(self, west: float, south: float, east: float, north: float) -> list[tuple[float, float]]:
        ways, y, is_eastward = [], south, True
        while y < north + self.LANE_M:
            lane = min(y, north)
            ways += [(west, lane), (east, lane)] if is_eastward else [(east, lane), (west, lane)]
            y, is_eastward = y + self.LANE_M, not is_eastward
        return ways

    def on_odometry(self, message: Any) -> Velocity:
        """What to fly now."""
        pose = pose_of(message)
        self._poses.append((nanoseconds(message.header.stamp), pose))
        self._height = pose.z if self._height is None else self._height
        if self.target is not None:
            return self._towards(self.target, pose)
        if math.dist(self._ways[0], pose[:2]) < self.REACHED_M:
            self._ways.append(self._ways.pop(0))  # round and round
        return self._towards(self._ways[0], pose)

    def _towards(self, place: tuple[float, float], pose: Pose) -> Velocity:
        east, north = place[0] - pose.x, place[1] - pose.y
        speed = self.GAIN * min(1.0, self.SPEED / self.GAIN / max(math.hypot(east, north), 1e-9))
        cosine, sine = math.cos(pose.yaw), math.sin(pose.yaw)
        climb = self.GAIN * ((self._height or pose.z) - pose.z)
        return Velocity(speed * (cosine * east + sine * north), speed * (cosine * north - sine * east), climb)

    def on_camera_info(self, message: Any) -> None:
        self._camera_info = message

    def on_image(self, message: Any) -> bytes | None:
        """What to radio: where the target is, with every image that shows it. Packets get lost, so it is repeated."""
        pixel = target_pixel(message)
        if pixel is not None and self._camera_info is not None and self._poses:
            exposed = nanoseconds(message.header.stamp)  # the image comes later than it was taken: look up where from
            _, pose = min(self._poses, key=lambda item: abs(item[0] - exposed))
            self.target = on_the_ground(pixel, self._camera_info, pose)
        return (
            None if self.target is None else json.dumps({"target": [round(value, 2) for value in self.target]}).encode()
        )

    def on_radio(self, payload: bytes) -> None:
        self.is_finished = self.is_finished or payload == b'{"arrived": true}'


def main() -> None:
    import rclpy
    from geometry_msgs.msg import Twist
    from nav_msgs.msg import Odometry
    from rclpy.executors import ExternalShutdownException
    from rclpy.parameter import Parameter
    from rclpy.qos import QoSProfile, ReliabilityPolicy
    from rclpy.signals import SignalHandlerOptions
    from sensor_msgs.msg import CameraInfo, Image
    from std_msgs.msg import ByteMultiArray

    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)  # so that Ctrl-C leaves time to stop the drone
    node = rclpy.create_node("team_drone", parameter_overrides=[Parameter("use_sim_time", value=True)])
    scout = Scout()
    # Topics are reliable, as QoSProfile(depth=n) is; the radio is best effort, like a radio.
    radio_in = QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT)
    radio_out = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    commands = node.create_publisher(Twist, "drone/cmd_vel", QoSProfile(depth=10))
    radio = node.create_publisher(ByteMultiArray, "radio/drone_tx", radio_out)

    def on_odometry(message: Odometry) -> None:
        command, twist = scout.on_odometry(message), Twist()
        twist.linear.x, twist.linear.y, twist.linear.z = command
        commands.publish(twist)

    def on_image(message: Image) -> None:
        payload = scout.on_image(message)
        if payload:
            node.get_logger().info(f"radio: {payload.decode()}")
            radio.publish(ByteMultiArray(data=[bytes([value]) for value in payload]))  # rclpy needs single bytes

    node.create_subscription(Odometry, "drone/odom", on_odometry, QoSProfile(depth=10))
    node.create_subscription(CameraInfo, "drone/camera/camera_info", scout.on_camera_info, QoSProfile(depth=2))
    node.create_subscription(Image, "drone/camera/image_raw", on_image, QoSProfile(depth=2))
    node.create_subscription(
        ByteMultiArray, "radio/drone_rx", lambda message: scout.on_radio(b"".join(message.data)), radio_in
    )
    try:
        while not scout.is_finished:
            rclpy.spin_once(node, timeout_sec=0.1)
        node.get_logger().info("the rover is at the target")
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        commands.publish(Twist())
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
