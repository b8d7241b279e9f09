"""`robot_simulator` on a transport: topics and parameters of the design document, logs at its levels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from microsim.engine.timekeeper import NS_PER_S
from microsim.errors import UsageError
from microsim.messages.topics import Qos
from microsim.ros2.node_settings import read_settings
from microsim.ros2.paced_node import SmallNode
from microsim.ros2.robot_simulator.core import RobotSimulator, rehearse
from microsim.ros2.robot_simulator.fleet import Pose
from microsim.ros2.robot_simulator.grids import GridMap, grid_of_message, grid_of_scenario, heading
from microsim.ros2.robot_simulator.map_files import is_map, read_map
from microsim.ros2.robot_simulator.moving import read_obstacles
from microsim.ros2.robot_simulator.sending import POSE, topic_of
from microsim.ros2.robot_simulator.settings import RobotSimulatorSettings
from microsim.ros2.transport import LogLevel, Transport
from microsim.runner import WallClock
from microsim.scenario.files import SUFFIXES

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
        core = RobotSimulator(chosen, self._say_of_robot, load_map(chosen), obstacles)
        rehearse(chosen, obstacles)
        super().__init__(transport, core, chosen.cycle_hz, chosen, clock)
        if not transport.tells_senders:
            for sending in core.sending:
                sending.remember()
        for number, robot in enumerate(chosen.robots):
            self._listen(number, robot, chosen)
        if chosen.map_topic:
            self.subscribe(chosen.map_topic, "nav_msgs/msg/OccupancyGrid", self._on_map, MAP_QOS)
        self.declare(chosen, core.configure)

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
        stamp, pose = message.header.stamp, message.pose.pose
        place, turn = pose.position, pose.orientation
        numbers = float(place.x), float(place.y), float(turn.z), float(turn.w)
        stamp_ns = stamp.sec * NS_PER_S + stamp.nanosec
        if self.core.sending[robot].is_own(stamp_ns, numbers):
            return
        if self._is_in_map_frame(robot, "/amcl_pose", message):
            self.core.external_pose(robot, _pose(pose), stamp_ns)

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
            self.core.use_map(grid_of_message(message, self.core.settings.map_occupied_min))
        except UsageError as error:
            self.ignore(f"maps on {topic}", "error", f"{topic}: ignored: {error}")
        else:
            self.say("info", f"{topic}: a map of {message.info.width} by {message.info.height} cells", "map")


def load_map(settings: RobotSimulatorSettings) -> GridMap | None:
    """What the parameter `map` names; raises MapError or ScenarioError."""
    if not settings.map:
        return None
    file = Path(settings.map)
    if file.suffix in SUFFIXES and is_map(file):
        return read_map(file, settings.map_occupied_min)
    return grid_of_scenario(settings.map)


def _pose(message: Any) -> Pose:
    return Pose(float(message.position.x), float(message.position.y), heading(message.orientation))
