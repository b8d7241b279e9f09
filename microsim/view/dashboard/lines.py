"""One line of text for each sensor, robot and radio link."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from rich.text import Text

from microsim.messages.outbox import Message
from microsim.view.dashboard.facts import Facts, Radio, Robot
from microsim.view.dashboard.raster import bar, spark

LABEL = 7  # characters
_ROOMY = 40  # characters from which numbers are given more room
_FIRST = ("sensor_msgs/msg/Range", "sensor_msgs/msg/NavSatFix", "sensor_msgs/msg/Imu", "sensor_msgs/msg/Image")
_HIDDEN = ("nav_msgs/msg/Odometry", "sensor_msgs/msg/CameraInfo")  # shown otherwise, or dull


def robot_lines(facts: Facts, robot: Robot, width: int) -> list[Text]:
    """Most telling first: where there is little room, the last are left out."""
    lines = [_pose(robot, width), _motion(robot)]
    messages = sensor_messages(facts, robot.name)
    for label, message in sorted(
        messages, key=lambda item: _FIRST.index(item[1].type) if item[1].type in _FIRST else 9
    ):
        content = LINES.get(message.type, _any)(message.message, width - LABEL, _age(facts, message))
        lines.append(Text.assemble((f"{label[: LABEL - 1]:{LABEL}}", "dim"), content))
    return lines


def short_line(robot: Robot, width: int) -> Text:
    """A robot in one line, where there is no room for more."""
    x, y, yaw = robot.place
    name = max(width - 27, 4)
    return Text(f"{robot.name[:name]:{name}} {x:6.1f} {y:6.1f} {robot.z:5.1f} {_degrees(yaw):4.0f}°")


def sensor_messages(facts: Facts, robot: str) -> Iterator[tuple[str, Message]]:
    """Sensor's name and newest message, for each sensor of a robot that is shown."""
    prefix = f"/{robot}/"
    for topic, message in facts.latest.items():
        if topic.startswith(prefix) and message.type not in _HIDDEN:
            yield topic[len(prefix) :].split("/")[0], message


def _pose(robot: Robot, width: int) -> Text:
    x, y, yaw = robot.place
    gap = "  " if width >= _ROOMY else " "
    numbers = (("x ", f"{x:6.2f}{gap}"), ("y ", f"{y:6.2f}{gap}"), ("z ", f"{robot.z:5.2f}{gap}"))
    heading = f"{_degrees(yaw):4.0f}°"
    return Text.assemble(*(part for name, number in numbers for part in ((name, "dim"), number)), heading)


def _motion(robot: Robot) -> Text:
    text = Text.assemble(f"{robot.speed:5.2f}", (" m/s   turn ", "dim"), f"{robot.turn:+5.2f}", (" rad/s", "dim"))
    if robot.contacts:
        text.append(f"  {robot.contacts} bumps" if robot.contacts < 1000 else "  at a wall", "yellow")
    return text


def _degrees(yaw: float) -> float:
    return math.degrees(yaw)


def _age(facts: Facts, message: Message) -> float:
    return max(facts.time_ns - message.stamp_ns, 0) / 1e9


def _gps(fix: Any, width: int, age: float) -> Text:
    if width < 34:
        return Text(f"{fix.latitude:.5f} {fix.longitude:.5f} {fix.altitude:.0f} m")
    return Text(f"{fix.latitude:.6f}°  {fix.longitude:.6f}°  {fix.altitude:.1f} m")


def _imu(imu: Any, width: int, age: float) -> Text:
    force, turn = imu.linear_acceleration, imu.angular_velocity
    text = Text.assemble(f"{force.x:+.2f} {force.y:+.2f} {force.z:+.2f}", (" m/s²", "dim"))
    if width >= 47:
        text.append_text(Text.assemble(f"  {turn.x:+.2f} {turn.y:+.2f} {turn.z:+.2f}", (" rad/s", "dim")))
    return text


def _range(reading: Any, width: int, age: float) -> Text:
    distance = float(reading.range)
    if math.isnan(distance):
        return Text("no echo", "dim")
    part = (distance - reading.min_range) / (reading.max_range - reading.min_range)
    words = f" {distance:5.2f} m" if math.isfinite(distance) else "   clear" if distance > 0.0 else "    near"
    filled, empty = bar(part, max(width - len(words), 0))
    return Text.assemble((filled, "red" if part < 0.15 else "yellow" if part < 0.4 else "green"), (empty, "dim"), words)


def _scan(scan: Any, width: int, age: float) -> Text:
    finite = scan.ranges[np.isfinite(scan.ranges)]
    words = f"nearest {finite.min():.2f} m" if len(finite) else "clear"
    return Text(f"{len(scan.ranges)} beams, {words}"[:width])


def _image(image: Any, width: int, age: float) -> Text:
    return Text.assemble(f"{image.width}×{image.height}", ("  seen ", "dim"), f"{age:.2f}", (" s ago", "dim"))


def _any(message: Any, width: int, age: float) -> Text:
    return Text.assemble(f"{age:.2f}", (" s ago", "dim"))


LINES: dict[str, Callable[[Any, int, float], Text]] = {
    "sensor_msgs/msg/NavSatFix": _gps,
    "sensor_msgs/msg/Imu": _imu,
    "sensor_msgs/msg/Range": _range,
    "sensor_msgs/msg/LaserScan": _scan,
    "sensor_msgs/msg/Image": _image,
}


def radio_lines(radio: Radio, width: int) -> list[Text]:
    who = f"{radio.sender} → {radio.receiver} "
    latency = f" {radio.latency_ms:.0f} ms" if radio.delivered else " silent"
    top = max(200.0, *(value for value in radio.history if value is not None), 0.0)
    sparks = Text(spark(radio.history, width - len(who) - len(latency), top), "cyan")
    sparks.highlight_words(["×"], "red")
    gap = " " * (width - len(who) - sparks.cell_len - len(latency))
    counts = (radio.sent, " sent  "), (radio.delivered, " got  "), (radio.lost, " lost  "), (radio.queue, " on air")
    return [
        Text.assemble(who, gap, sparks, latency),
        Text.assemble(*(part for number, word in counts for part in (str(number), (word, "dim")))),
    ]


def topic_lines(facts: Facts, width: int) -> list[Text]:
    """Every topic, its type and the size of its newest message."""
    lines = []
    for topic, message in sorted(facts.latest.items()):
        kind = f"{message.type.split('/')[-1]} {len(message.cdr):6,} B"
        gap = " " * max(width - len(topic) - len(kind), 1)
        lines.append(Text.assemble(topic, gap, (kind, "dim")))
    return lines
