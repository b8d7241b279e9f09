"""Watch the rover's range sensor: one line a second, with what the special values mean.

    python range_watch.py

Listens to rover/range/front. Ctrl-C ends it.
"""

from __future__ import annotations

import math
from typing import Any


def meaning(reading: Any) -> str:
    """What a sensor_msgs/Range says in words (REP-117)."""
    if math.isnan(reading.range):
        return "no echo"
    if reading.range == math.inf:
        return f"free for {reading.max_range:.1f} m and more"
    if reading.range == -math.inf:
        return f"something closer than {reading.min_range:.1f} m"
    return f"something at {reading.range:.2f} m"


class RangeWatch:
    """The nearest of each second of simulated time."""

    def __init__(self) -> None:
        self._second: int | None = None
        self._nearest: Any = None

    def see(self, reading: Any) -> str | None:
        """A line when a second is over."""
        second, line = reading.header.stamp.sec, None
        if self._second not in (None, second):
            line = f"second {self._second}: {meaning(self._nearest)}"
            self._nearest = None
        self._second = second
        if self._nearest is None or math.isnan(self._nearest.range) or reading.range < self._nearest.range:
            self._nearest = reading
        return line


def main() -> None:
    import rclpy
    from rclpy.executors import ExternalShutdownException
    from rclpy.parameter import Parameter
    from rclpy.qos import QoSProfile
    from sensor_msgs.msg import Range

    rclpy.init()
    node = rclpy.create_node("range_watch", parameter_overrides=[Parameter("use_sim_time", value=True)])
    watch = RangeWatch()

    def on_range(message: Range) -> None:
        line = watch.see(message)
        if line:
            node.get_logger().info(line)

    # reliable, volatile, keep last 5: as the simulator publishes
    node.create_subscription(Range, "rover/range/front", on_range, QoSProfile(depth=5))
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
