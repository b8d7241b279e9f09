"""Team task, the rover's part: drive to the place the drone radios, around what the range sensor sees.

    microsim run examples/ros2/team_task.yaml      (in another terminal)
    python team_rover.py                           (and team_drone.py in a third)

Listens to rover/odom, rover/range/front and radio/rover_rx; speaks on rover/cmd_vel and radio/rover_tx. Ends a few
seconds after it has arrived, when the drone had many chances to hear of it.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple


class Pose(NamedTuple):
    x: float  # [m], map frame
    y: float
    yaw: float  # [rad]


class Drive(NamedTuple):
    v: float = 0.0  # [m/s] forward
    omega: float = 0.0  # [rad/s] counter-clockwise


def pose_of(odometry: Any) -> Pose:
    position, turn = odometry.pose.pose.position, odometry.pose.pose.orientation
    return Pose(position.x, position.y, 2.0 * math.atan2(turn.z, turn.w))


def target_in(payload: bytes) -> tuple[float, float] | None:
    """The target in a packet, or None. Packets come from outside: trust nothing."""
    try:
        x, y = json.loads(payload)["target"]
        place = float(x), float(y)
    except (ValueError, TypeError, KeyError):
        return None
    return place if all(map(math.isfinite, place)) else None


def wrapped(angle: float) -> float:
    return math.remainder(angle, 2.0 * math.pi)


class Driver:
    """Drives to the target. Before an obstacle it turns left until the way is clear, passes, aims again."""

    SPEED, TURN_RATE = 1.5, 0.9  # [m/s], [rad/s]
    ARRIVED_M = 1.0
    NEAR_M, CLEAR_M, PASS_M = 2.0, 5.0, 4.0  # turns at one, drives on at the next, and so far
    CLEAR_READINGS = 4  # one beam sees one line: turn a little beyond the edge
    REPORTS, REPORT_EVERY = 20, 15  # how often it radios that it has arrived, and how many odometry messages apart

    def __init__(self) -> None:
        self.target: tuple[float, float] | None = None
        self._there = 0  # odometry messages since it arrived
        self._distance = math.inf  # the last reading [m]
        self._clear = 0  # clear readings in a row
        self._mode = self._aim
        self._passed_from: Pose | None = None

    @property
    def is_finished(self) -> bool:
        return self._there >= self.REPORTS * self.REPORT_EVERY

    def on_radio(self, payload: bytes) -> None:
        self.target = target_in(payload) or self.target

    def on_range(self, message: Any) -> None:
        if not math.isnan(message.range):  # without an echo, nothing changes
            self._distance = message.range
            self._clear = self._clear + 1 if message.range > self.CLEAR_M else 0

    def on_odometry(self, message: Any) -> Drive:
        """What to drive now."""
        pose = pose_of(message)
        if self.has_arrived(pose):
            self._there += 1
            return Drive()
        return Drive() if self.target is None else self._mode(pose)

    def report(self) -> bytes | None:
        """What to radio after an odometry message. Packets get lost, so the arrival is sent many times."""
        return b'{"arrived": true}' if self._there % self.REPORT_EVERY == 1 else None

    def has_arrived(self, pose: Pose) -> bool:
        return self.target is not None and math.dist(self.target, pose[:2]) < self.ARRIVED_M

    def _bearing(self, pose: Pose) -> float:
        x, y = self.target or pose[:2]
        return wrapped(math.atan2(y - pose.y, x - pose.x) - pose.yaw)

    def _aim(self, pose: Pose) -> Drive:
        bearing = self._bearing(pose)
        if abs(bearing) > 0.1:
            return Drive(omega=math.copysign(min(self.TURN_RATE, 2.0 * abs(bearing)), bearing))
        self._mode = self._go
        return Drive()

    def _go(self, pose: Pose) -> Drive:
        remaining = math.dist(self.target or pose[:2], pose[:2])
        if self._distance < min(self.NEAR_M, remaining):
            self._mode, self._clear = self._turn, 0
            return Drive()
        bearing = self._bearing(pose)
        if abs(bearing) > 0.5:
            self._mode = self._aim
        return Drive(v=min(self.SPEED, 0.3 + 0.5 * self._distance), omega=1.5 * bearing)

    def _turn(self, pose: Pose) -> Drive:
        if self._clear < self.CLEAR_READINGS:
            return Drive(omega=self.TURN_RATE)
        self._mode, self._passed_from = self._pass, pose
        return Drive()

    def _pass(self, pose: Pose) -> Drive:
        if self._distance < self.NEAR_M:
            self._mode, self._clear = self._turn, 0
            return Drive()
        if math.dist(pose[:2], (self._passed_from or pose)[:2]) > self.PASS_M:
            self._mode = self._aim
        return Drive(v=self.SPEED)


def main() -> None:
    import rclpy
    from geometry_msgs.msg import Twist
    from nav_msgs.msg import Odometry
    from rclpy.executors import ExternalShutdownException
    from rclpy.parameter import Parameter
    from rclpy.qos import QoSProfile, ReliabilityPolicy
    from rclpy.signals import SignalHandlerOptions
    from sensor_msgs.msg import Range
    from std_msgs.msg import ByteMultiArray

    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)  # so that Ctrl-C leaves time to stop the rover
    node = rclpy.create_node("team_rover", parameter_overrides=[Parameter("use_sim_time", value=True)])
    driver = Driver()
    # Topics are reliable, as QoSProfile(depth=n) is; the radio is best effort, like a radio.
    radio_in = QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT)
    radio_out = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    commands = node.create_publisher(Twist, "rover/cmd_vel", QoSProfile(depth=10))
    radio = node.create_publisher(ByteMultiArray, "radio/rover_tx", radio_out)

    def on_odometry(message: Odometry) -> None:
        twist = Twist()
        twist.linear.x, twist.angular.z = driver.on_odometry(message)
        commands.publish(twist)
        payload = driver.report()
        if payload:
            node.get_logger().info(f"radio: {payload.decode()}")
            radio.publish(ByteMultiArray(data=[bytes([value]) for value in payload]))  # rclpy needs single bytes

    def on_radio(message: ByteMultiArray) -> None:
        if driver.target is None:
            node.get_logger().info(f"received {b''.join(message.data).decode(errors='replace')}")
        driver.on_radio(b"".join(message.data))

    node.create_subscription(Odometry, "rover/odom", on_odometry, QoSProfile(depth=10))
    node.create_subscription(Range, "rover/range/front", driver.on_range, QoSProfile(depth=5))
    node.create_subscription(ByteMultiArray, "radio/rover_rx", on_radio, radio_in)
    try:
        while not driver.is_finished:
            rclpy.spin_once(node, timeout_sec=0.1)
        node.get_logger().info("arrived")
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        commands.publish(Twist())
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
