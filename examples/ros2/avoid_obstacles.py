"""Obstacle avoidance: the rover wanders without touching anything, by its range sensor alone.

    microsim run obstacles_arena            (in another terminal)
    python avoid_obstacles.py

Listens to rover/range/front, speaks on rover/cmd_vel. Ctrl-C ends it.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Drive(NamedTuple):
    v: float = 0.0  # [m/s] forward
    omega: float = 0.0  # [rad/s] counter-clockwise


class Avoider:
    """Straight on, slower the less room there is; before an obstacle it turns on the spot until the way is clear.

    One beam sees one line, so the rover keeps turning beyond the first clear reading: otherwise its path would lead
    along the very edge of what it avoids. How far beyond differs from turn to turn, so that it does not drive the same
    ways again and again.
    """

    SPEED, TURN_RATE = 1.2, 0.8  # [m/s], [rad/s]
    NEAR_M, CLEAR_M = 1.5, 3.0  # turns at one, drives on at the other
    BEYOND = (5, 14, 8, 20)  # clear readings to turn through, 0.08 rad each: turn by turn, then from the start
    WHOLE_TURN = 79  # readings; after that any clear one will do

    def __init__(self) -> None:
        self._turns = 0
        self._readings: int | None = None  # in the turn under way
        self._clear = 0  # clear readings in a row
        self._drive = Drive()

    def command(self, distance: float) -> Drive:
        """What to drive after this reading [m]: +inf nothing in range, -inf too near, NaN no echo (REP-117)."""
        if not math.isnan(distance):  # without an echo, continue as before
            self._drive = self._go(distance) if self._readings is None else self._turn(distance, self._readings)
        return self._drive

    def _go(self, distance: float) -> Drive:
        if distance < self.NEAR_M:
            self._turns, self._clear = self._turns + 1, 0
            return self._turn(distance, 0)
        return Drive(v=min(self.SPEED, 0.3 + 0.6 * (distance - self.NEAR_M)))

    def _turn(self, distance: float, readings: int) -> Drive:
        self._clear = self._clear + 1 if distance > self.CLEAR_M else 0
        wanted = 1 if readings > self.WHOLE_TURN else self.BEYOND[self._turns % len(self.BEYOND)]
        is_done = self._clear >= wanted
        self._readings = None if is_done else readings + 1
        return Drive() if is_done else Drive(omega=self.TURN_RATE)


def main() -> None:
    import rclpy
    from geometry_msgs.msg import Twist
    from rclpy.executors import ExternalShutdownException
    from rclpy.parameter import Parameter
    from rclpy.qos import QoSProfile
    from rclpy.signals import SignalHandlerOptions
    from sensor_msgs.msg import Range

    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)  # so that Ctrl-C leaves time to stop the rover
    node = rclpy.create_node("avoid_obstacles", parameter_overrides=[Parameter("use_sim_time", value=True)])
    avoider = Avoider()
    # QoSProfile(depth=n) is reliable, volatile and keeps the last n: as the simulator publishes.
    commands = node.create_publisher(Twist, "rover/cmd_vel", QoSProfile(depth=10))

    def on_range(message: Range) -> None:
        twist = Twist()
        twist.linear.x, twist.angular.z = avoider.command(message.range)
        commands.publish(twist)

    node.create_subscription(Range, "rover/range/front", on_range, QoSProfile(depth=5))
    try:
        while rclpy.ok():
            rclpy.spin_once(node, timeout_sec=0.1)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        commands.publish(Twist())
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
