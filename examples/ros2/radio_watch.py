"""Watch the radio: every packet that arrives at a robot, and once a second how good the link is.

    python radio_watch.py

Listens to radio/drone_rx, radio/rover_rx and radio/metrics. Ctrl-C ends it.
"""

from __future__ import annotations

from typing import Any


def shown(payload: bytes, width: int = 60) -> str:
    """A payload as a person can read it: as text where it is one, else in hex."""
    try:
        text = payload.decode("utf-8")
        text = text if text.isprintable() else payload.hex(" ")
    except UnicodeDecodeError:
        text = payload.hex(" ")
    return text if len(text) <= width else f"{text[:width]}… ({len(payload)} bytes)"


def link_lines(metrics: Any) -> list[str]:
    """One line for each direction of a diagnostic_msgs/DiagnosticArray from /radio/metrics."""
    lines = []
    for status in metrics.status:
        values = {pair.key: pair.value for pair in status.values}
        lines.append(f"{status.name}: " + ", ".join(f"{key} {value}" for key, value in values.items()))
    return lines


def main() -> None:
    import rclpy
    from diagnostic_msgs.msg import DiagnosticArray
    from rclpy.executors import ExternalShutdownException
    from rclpy.parameter import Parameter
    from rclpy.qos import QoSProfile, ReliabilityPolicy
    from std_msgs.msg import ByteMultiArray

    rclpy.init()
    node = rclpy.create_node("radio_watch", parameter_overrides=[Parameter("use_sim_time", value=True)])
    say = node.get_logger().info

    def on_metrics(message: DiagnosticArray) -> None:
        for line in link_lines(message):
            say(line)

    def listen(robot: str) -> None:
        best_effort = QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT)  # as the radio publishes
        topic = f"radio/{robot}_rx"
        node.create_subscription(
            ByteMultiArray, topic, lambda message: say(f"{robot} received {shown(b''.join(message.data))}"), best_effort
        )

    listen("drone")
    listen("rover")
    node.create_subscription(DiagnosticArray, "radio/metrics", on_metrics, QoSProfile(depth=1))
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
