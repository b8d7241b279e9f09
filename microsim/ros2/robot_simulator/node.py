"""`robot_simulator` on a transport: topics and parameters of the design document, logs at its levels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from microsim.engine.timekeeper import NS_PER_S
from microsim.errors import UsageError
from microsim.messages.topics import Qos
from microsim.ros2.node_settings import read_settings
from microsim.ros2.node_time import node_clock
from microsim.ros2.paced_node import SmallNode
from microsim.ros2.robot_simulator.core import Pose, RobotSimulator, topic_of
from microsim.ros2.robot_simulator.maps import heading, load_map, world_of_message
from microsim.ros2.robot_simulator.moving import read_obstacles
from microsim.ros2.robot_simulator.settings import RobotSimulatorSettings
from microsim.ros2.transport import LogLevel, Transport
from microsim.runner import WallClock
from microsim.sensors.localisation import POSE_TYPE as POSE

NAME = "robot_simulator"
COMMAND_QOS = Qos(10)  # §9: reliable, keep last 10; so are targets and external poses
MAP_QOS = Qos(1, latched=True)  # as map_server offers it


class RobotSimulatorNode(SmallNode):
    core: RobotSimulator

    def __init__(
        self, transport: Transport, settings: RobotSimulatorSettings | None = None, clock: WallClock | None = None
    ) -> None:
        """Settings that are not given are read from the transport's --ros-args."""
        chosen = settings if settings is not None else read_settings(transport, RobotSimulatorSettings)
        obstacles = read_obstacles(chosen.obstacles) if chosen.obstacles else ()
        world = load_map(chosen.map, chosen.map_occupied_min) if chosen.map else None
        core = RobotSimulator(chosen, self._say_of_robot, world, obstacles, node_clock(chosen, chosen.cycle_hz))
        super().__init__(transport, core, chosen, clock)
        for number, robot in enumerate(chosen.robots):
            self._listen(number, robot, chosen)
        if chosen.map_topic:
            self.subscribe(chosen.map_topic, "nav_msgs/msg/OccupancyGrid", self._on_map, MAP_QOS)
        self.declare(chosen, core.configure)

    def waits_for(self) -> str:
        topics = ", ".join(topic_of(robot, "/active_target") for robot in self.core.robots[:3])
        more = ", …" if len(self.core.robots) > 3 else ""
        return f"a first pose on {topics}{more} or /initialpose; until then commands are ignored"

    def _say_of_robot(self, level: LogLevel, text: str, kind: str) -> None:
        self.say(level, text, kind)

    def _listen(self, number: int, robot: str, settings: RobotSimulatorSettings) -> None:
        def subscribe(name: str, type_name: str, take: Callable[[int, Any], None], from_others: bool = False) -> None:
            topic = topic_of(robot, name)
            self.subscribe(topic, type_name, lambda message: take(number, message), COMMAND_QOS, from_others)

        twist = "TwistStamped" if settings.stamped_cmd_vel else "Twist"
        subscribe("/cmd_vel", f"geometry_msgs/msg/{twist}", self._on_cmd_vel)
        subscribe("/active_target", "geometry_msgs/msg/PoseStamped", self._on_active_target)
        subscribe("/amcl_pose", POSE, self._on_amcl_pose, from_others=True)
        subscribe("/initialpose", POSE, self._on_initial_pose)

    def _on_cmd_vel(self, robot: int, message: Any) -> None:
        twist = message.twist if self.core.settings.stamped_cmd_vel else message
        self.core.command(robot, float(twist.linear.x), float(twist.angular.z))

    def _on_active_target(self, robot: int, message: Any) -> None:
        if self._is_in_map_frame(robot, "/active_target", message):
            self.core.target(robot, _pose(message.pose))

    def _on_amcl_pose(self, robot: int, message: Any) -> None:
        stamp = message.header.stamp
        if self._is_in_map_frame(robot, "/amcl_pose", message):
            self.core.external_pose(robot, _pose(message.pose.pose), stamp.sec * NS_PER_S + stamp.nanosec)

    def _on_initial_pose(self, robot: int, message: Any) -> None:
        if self._is_in_map_frame(robot, "/initialpose", message):
            self.core.initial_pose(robot, _pose(message.pose.pose))

    def _is_in_map_frame(self, robot: int, name: str, message: Any) -> bool:
        """A frame that was not filled in counts as the map's."""
        frame, expected = message.header.frame_id, self.core.settings.frame_map
        if frame in ("", expected):
            return True
        topic = topic_of(self.core.robots[robot], name)
        self.ignore(f"poses in other frames on {topic}", "warn", f"{topic}: in frame {frame!r}, expected {expected!r}")
        return False

    def _on_map(self, message: Any) -> None:
        topic = self.core.settings.map_topic
        try:
            self.core.use_map(world_of_message(message, self.core.settings.map_occupied_min))
        except UsageError as error:
            self.ignore(f"maps on {topic}", "error", f"{topic}: ignored: {error}")
        else:
            self.say("info", f"{topic}: a map of {message.info.width} by {message.info.height} cells", "map")


def _pose(message: Any) -> Pose:
    return Pose(float(message.position.x), float(message.position.y), heading(message.orientation))
